package model

import (
	"maps"
	"regexp/syntax"
	"slices"
	"unicode"

	networkingv1 "istio.io/api/networking/v1alpha3"
)

// MostRegexCost bounds the sum of the costs (RegexCosts) of the regular expressions that a gateway evaluates for one
// request, among the rules of one namespace for one host. A header of 60 kB, the largest that Envoy accepts, then
// occupies a worker of Envoy for about 100 ms (measured: at most 0.9 ns for each byte and unit of the cost).
const MostRegexCost = 2000

// Costs of an expression that do not depend on the size of its program.
const (
	linearCost = 2   // cost of an expression that RE2 matches with its DFA, which reads each byte once
	manyStates = 500 // cost of making DFA states that are not needed again
)

// These constants bound the search for the states of an expression's DFA. RE2 stores at least mostStates states in its
// memory of 8 MiB. mostSteps bounds the search to some milliseconds.
const (
	mostStates  = 1000
	mostSteps   = 100_000
	mostProgram = 16_000    // above this size no states are searched
	allSteps    = 5_000_000 // for the expressions of one VirtualService together: some 70 ms
)

// RegexCosts computes the costs of the regular expressions of one VirtualService. Its work is bounded: expressions
// beyond the bound count as the most expensive ones. The zero value is ready for the first rule.
type RegexCosts struct {
	spent int // by the matches of earlier rules
	work  int // RegexWork of the parsed expressions
	steps int // of the searches for states, weighted with their time
}

// of returns the cost of matching a regular expression with a text, as a number of instructions of RE2 for each byte.
// RE2 matches with a DFA whose states it makes as the text needs them. If an expression has too many states, RE2
// executes up to all instructions of the program for each byte. The cost is 0 for a pattern that does not parse.
func (c *RegexCosts) of(pattern string) int {
	parsed, cost := c.parse(pattern)
	if parsed == nil {
		return cost
	}
	size := sizeOf(parsed)
	if size <= mostProgram && c.steps < allSteps {
		states, steps := statesOf(parsed)
		if c.steps += 4*size + 2*steps; states > 0 {
			return linearCost + states/50
		}
	}
	return manyStates + size
}

// parse returns the parsed pattern. Without it the result is the cost to count: 0 for a pattern that does not parse,
// and more than MostRegexCost once the expressions of the VirtualService exceed MostRegexWork.
func (c *RegexCosts) parse(pattern string) (*syntax.Regexp, int) {
	if c.work += RegexWork(pattern); c.work > MostRegexWork {
		return nil, MostRegexCost + 1
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, 0
	}
	return parsed, 0
}

// Rule returns the costs of the regular expressions of the next http rule. The result match is the cost of the
// expressions in its matches, which Envoy evaluates until a rule matches. The result action is the cost of those that
// Envoy evaluates after it has selected the rule. Once the sum of both and of the matches of earlier rules exceeds
// MostRegexCost, each further expression counts as more than the bound, because computing its cost would take time.
func (c *RegexCosts) Rule(h *networkingv1.HTTPRoute) (match, action int) {
	of := func(m *networkingv1.StringMatch) int {
		switch pattern := m.GetRegex(); {
		case pattern == "":
			return 0
		case c.spent+match+action > MostRegexCost:
			return MostRegexCost + 1
		default:
			return c.of(pattern)
		}
	}
	for _, m := range h.GetMatch() {
		for _, text := range []*networkingv1.StringMatch{m.GetUri(), m.GetScheme(), m.GetMethod(), m.GetAuthority()} {
			match += of(text)
		}
		for _, by := range []map[string]*networkingv1.StringMatch{m.GetHeaders(), m.GetWithoutHeaders(), m.GetQueryParams()} {
			for _, name := range slices.Sorted(maps.Keys(by)) { // the sum depends on the order once it exceeds the bound
				match += of(by[name])
			}
		}
	}
	for _, origin := range h.GetCorsPolicy().GetAllowOrigins() {
		action += of(origin)
	}
	if pattern := h.GetRewrite().GetUriRegexRewrite().GetMatch(); pattern != "" {
		parsed, cost := c.parse(pattern)
		if action += cost; parsed != nil {
			action += manyStates + sizeOf(parsed) // RE2 finds groups without a DFA
		}
	}
	c.spent += match
	return match, action
}

// statesOf returns the number of states of an expression's DFA, and the steps of the search. The number is 0 if there
// are more than mostStates states, or if the search takes more than mostSteps steps.
func statesOf(parsed *syntax.Regexp) (states, steps int) {
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0, 0
	}
	d := determiniser{prog: prog, letters: letters(prog), seen: map[string]bool{}, visited: make([]int, len(prog.Inst))}
	d.visit([]uint32{uint32(prog.Start)})
	for len(d.todo) > 0 {
		state := d.todo[len(d.todo)-1]
		d.todo = d.todo[:len(d.todo)-1]
		for _, letter := range d.letters {
			next := d.next[:0]
			for _, pc := range state {
				if in := &prog.Inst[pc]; in.MatchRune(letter) {
					next = append(next, in.Out)
				}
			}
			if d.steps += len(state); len(next) > 0 {
				d.visit(next)
			}
			d.next = next[:0]
			if d.gaveUp() {
				return 0, d.steps
			}
		}
	}
	return len(d.seen), d.steps
}

// determiniser searches the states of a program's DFA. A state is a sorted list of the instructions that compare the
// next character.
type determiniser struct {
	prog    *syntax.Prog
	letters []rune // a character of each class that the program distinguishes
	seen    map[string]bool
	todo    [][]uint32
	steps   int
	visits  int   // number of calls of visit
	visited []int // by instruction: the last call of visit that reached it

	next, state []uint32 // buffers that are used again
	key         []byte
}

func (d *determiniser) gaveUp() bool { return len(d.seen) > mostStates || d.steps > mostSteps }

// visit adds the state that the instructions lead to without a further character, unless it is known.
func (d *determiniser) visit(from []uint32) {
	state := d.state[:0]
	d.visits++
	for len(from) > 0 {
		pc := from[len(from)-1]
		from = from[:len(from)-1]
		if d.steps++; d.visited[pc] == d.visits {
			continue
		}
		d.visited[pc] = d.visits
		switch in := &d.prog.Inst[pc]; in.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			from = append(from, in.Out, in.Arg)
		case syntax.InstCapture, syntax.InstNop, syntax.InstEmptyWidth: // an assertion may hold
			from = append(from, in.Out)
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			state = append(state, pc)
		case syntax.InstMatch, syntax.InstFail:
		}
	}
	slices.Sort(state)
	key := d.key[:0]
	for _, pc := range state {
		key = append(key, byte(pc), byte(pc>>8), byte(pc>>16), byte(pc>>24))
	}
	if !d.seen[string(key)] {
		d.seen[string(key)] = true
		d.todo = append(d.todo, slices.Clone(state))
	}
	d.state, d.key = state, key
}

// letters returns a character of each class that the instructions of a program distinguish.
func letters(prog *syntax.Prog) []rune {
	all := []rune{0, '\n', '\n' + 1}
	for i := range prog.Inst {
		in := &prog.Inst[i]
		switch {
		case in.Op != syntax.InstRune && in.Op != syntax.InstRune1:
		case len(in.Rune) == 1:
			all = append(all, in.Rune[0], in.Rune[0]+1)
			for r := unicode.SimpleFold(in.Rune[0]); r != in.Rune[0]; r = unicode.SimpleFold(r) {
				all = append(all, r, r+1)
			}
		default:
			for j := 1; j < len(in.Rune); j += 2 {
				all = append(all, in.Rune[j-1], in.Rune[j]+1)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
