package meaning

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
)

const (
	maxLines    = 1000 // the maximum number of facts that Over keeps, and of risks
	maxSubjects = 5    // the maximum number of named subjects of a line
)

// Count counts the views and the proxies that a fact or a risk is about.
type Count struct {
	Views, Proxies int
	// Example is the label of the first of these views. It is empty for the risks of reach.
	Example string
	last    int    // number of the last view that was counted
	sum     uint64 // hash of the numbers of the views, which identifies sets of views
}

// add counts a view, unless the previous call counted the same view.
func (c *Count) add(number int, v View) {
	if c.last == number {
		return
	}
	if c.last = number; c.Views == 0 {
		c.Example = v.Label
	}
	c.Views++
	c.Proxies += v.Proxies
	c.sum = (c.sum ^ uint64(number)) * 1099511628211 // FNV-1a
}

// Subjects are the subjects of the facts or risks that one line joins.
type Subjects struct {
	Named  []string // the first subjects, at most 5 (maxSubjects)
	Others int      // number of further subjects
}

// add adds a subject.
func (s *Subjects) add(subject string) {
	if len(s.Named) < maxSubjects {
		s.Named = append(s.Named, subject)
	} else {
		s.Others++
	}
}

// FactLine is one fact, or several facts that differ only in their subjects and hold for the same views. Fact.Subject
// is the first subject.
type FactLine struct {
	Fact
	Subjects
	Count
}

// RiskLine is one risk, or several risks that differ only in their subjects and hold for the same views. Risk.Subject
// is the first subject. If several views have the risk, Objects joins the objects of these views, at most 5.
type RiskLine struct {
	Risk
	Subjects
	Count
}

// Summary contains the facts and risks of several views.
type Summary struct {
	Facts []FactLine // sorted by area and subject
	Risks []RiskLine // sorted by severity, the most severe first, then by code and subject
	// MoreFacts and MoreRisks count the facts and risks beyond the first 1,000 (maxLines), which are not listed. A fact
	// or risk of several views counts once for each view.
	MoreFacts, MoreRisks int
	Views, Proxies       int // numbers of all compared views, and of their proxies
}

// Highest returns the level of the most severe risk in Risks, or 0 without risks.
func (s Summary) Highest() Level {
	if len(s.Risks) == 0 {
		return 0
	}
	return s.Risks[0].Level
}

// Unchanged returns the areas without a fact in Facts, in the order of the areas. It is nil if all areas have facts.
// Facts that MoreFacts counts are not considered. The caller owns the result.
func (s Summary) Unchanged() (all []Area) {
	for area := range NumAreas {
		if !slices.ContainsFunc(s.Facts, func(f FactLine) bool { return f.Area == area }) {
			all = append(all, area)
		}
	}
	return all
}

// summing is a Summary while views are added.
type summing struct {
	Summary
	facts map[Fact]*FactLine
	risks map[riskKey]*RiskLine
	memo  *memo
}

// Over returns the facts and risks of several views, each once, and the risks of reach. It compares up to 20,000 pairs
// with different versions once, even if several views have them. It reads one view after the other, so the iterator may
// make each view on demand, and may stop early. Once ctx has ended, rules are no longer compared, and the result is
// incomplete. The Objects of risks may share memory with r.
func Over(ctx context.Context, views iter.Seq[View], r Reach) Summary {
	s := &summing{facts: map[Fact]*FactLine{}, risks: map[riskKey]*RiskLine{}, memo: newMemo(ctx)}
	for v := range views {
		s.add(v)
	}
	for _, risk := range r.Risks() {
		s.addRisk(risk, View{}).Count = Count{Views: s.Views, Proxies: r.Proxies}
	}
	return s.result()
}

// add adds a view.
func (s *summing) add(v View) {
	s.Views++
	s.Proxies += v.Proxies
	for _, f := range facts(v, s.memo.compare) {
		line := s.facts[f]
		switch {
		case line == nil && len(s.facts) >= maxLines:
			s.MoreFacts++
			continue
		case line == nil:
			line = &FactLine{Fact: f}
			s.facts[f] = line
			s.Facts = append(s.Facts, FactLine{Fact: f})
		}
		line.Count.add(s.Views, v)
	}
	for _, risk := range risks(v, s.memo) {
		s.addRisk(risk, v)
	}
}

// addRisk counts a risk, and returns its line. For a new risk beyond maxLines, the line is not part of s.
func (s *summing) addRisk(risk Risk, v View) *RiskLine {
	line := s.risks[risk.key()]
	switch {
	case line == nil && len(s.risks) >= maxLines:
		s.MoreRisks++
		return &RiskLine{}
	case line == nil:
		line = &RiskLine{Risk: risk}
		s.risks[risk.key()] = line
	default:
		line.Objects = slices.Compact(slices.Sorted(slices.Values(slices.Concat(line.Objects, risk.Objects))))
		line.Objects = line.Objects[:min(len(line.Objects), maxSubjects)]
	}
	line.Count.add(s.Views, v)
	return line
}

// Add inserts a risk, which the caller has found, into Risks. Risks stays sorted. c counts the views and proxies of the
// risk. A Subject or Text of more than 400 runes is shortened. Add keeps r.Objects. It neither joins equal risks nor
// changes MoreRisks, Views and Proxies.
func (s *Summary) Add(r Risk, c Count) {
	r.Subject, r.Text = clip(r.Subject), clip(r.Text)
	line := RiskLine{Risk: r, Count: c}
	line.Subjects.add(r.Subject)
	at, _ := slices.BinarySearchFunc(s.Risks, line, func(a, b RiskLine) int { return compareRisks(a.Risk, b.Risk) })
	s.Risks = slices.Insert(s.Risks, at, line)
}

// result joins the lines that differ only in their subjects and have the same views, and sorts the lines.
func (s *summing) result() Summary {
	out, at := s.Summary, map[string]int{}
	out.Facts = nil
	for _, f := range s.Facts {
		line := s.facts[f.Fact]
		key := fmt.Sprintf("%d %q %q %d", f.Area, f.Aspect, f.Text, line.sum)
		i, is := at[key]
		if !is {
			i, at[key], out.Facts = len(out.Facts), len(out.Facts), append(out.Facts, *line)
		}
		out.Facts[i].Subjects.add(f.Subject)
	}
	slices.SortStableFunc(out.Facts, func(a, b FactLine) int {
		return cmp.Or(cmp.Compare(a.Area, b.Area), cmp.Compare(a.Subject, b.Subject))
	})
	risks := slices.SortedFunc(maps.Values(s.risks), func(a, b *RiskLine) int { return compareRisks(a.Risk, b.Risk) })
	for _, line := range risks {
		key := fmt.Sprintf("%s %d %q %q %d", line.Code, line.Level, line.Text, line.Objects, line.sum)
		i, is := at[key]
		if !is {
			i, at[key], out.Risks = len(out.Risks), len(out.Risks), append(out.Risks, *line)
		}
		out.Risks[i].Subjects.add(line.Subject)
	}
	return out
}

// Reach contains the figures of a change as a whole. A zero figure is unknown, and causes no risk.
type Reach struct {
	// MeshWide are the objects of the change that apply to the whole mesh, as "Kind namespace/name".
	MeshWide []string
	// Edited are the objects of the change, as "Kind namespace/name"; nil: unknown. Risks name these objects as the
	// cause if there are at most 5.
	Edited []string
	// Proxies counts the proxies whose configuration changes, and All counts all proxies. All is at least Proxies. More
	// than 10 % are a risk, and more than 50 % are a high risk.
	Proxies, All int
	// Views are the numbers of views before and after the change. More than twice as many views are a risk.
	Views [2]int
	// Bytes are the sizes of the configuration of one proxy before and after the change, for the view whose
	// configuration grows most. Growth by more than 20 % is a risk.
	Bytes [2]int64
	// Found are further risks, which the caller decides.
	Found []Risk
}

// The limits of reach, in percent.
const (
	manyProxies = 10
	mostProxies = 50
	muchGrowth  = 20
)

// Risks returns the risks of the figures, then Found. A Subject or Text of more than 400 runes is shortened. The result
// is not sorted, and nil without risks. The Objects of its risks may share memory with r.
func (r Reach) Risks() (all []Risk) {
	var cause []string
	if len(r.Edited) <= maxSubjects {
		cause = r.Edited
	}
	for _, object := range r.MeshWide {
		all = append(all, Risk{Code: MeshWide, Level: Medium, Subject: clip(object), Objects: []string{object},
			Text: "the object applies to the whole mesh"})
	}
	if r.All > 0 && r.Proxies*100 > r.All*manyProxies {
		level := Medium
		if r.Proxies*100 > r.All*mostProxies {
			level = High
		}
		all = append(all, Risk{Code: ManyProxies, Level: level, Subject: "reach", Objects: cause,
			Text: fmt.Sprintf("%d of %d proxies get a different configuration (%s)", r.Proxies, r.All,
				percent(uint64(r.Proxies), uint64(r.All)))})
	}
	if r.Views[0] > 0 && r.Views[1] > 2*r.Views[0] {
		all = append(all, Risk{Code: ViewsMultiply, Level: Medium, Subject: "reach", Objects: cause,
			Text: fmt.Sprintf("views %d -> %d", r.Views[0], r.Views[1])})
	}
	if r.Bytes[0] > 0 && (r.Bytes[1]-r.Bytes[0])*100 > r.Bytes[0]*muchGrowth {
		all = append(all, Risk{Code: BytesGrow, Level: Medium, Subject: "reach", Objects: cause,
			Text: fmt.Sprintf("bytes per proxy %d -> %d", r.Bytes[0], r.Bytes[1])})
	}
	for _, risk := range r.Found {
		risk.Subject, risk.Text = clip(risk.Subject), clip(risk.Text)
		all = append(all, risk)
	}
	return all
}
