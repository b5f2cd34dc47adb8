// Package migrate says what becomes of an istiod's settings with Navarch: of each Helm value, flag and environment variable whether it is acted on, and
// by what, whether it is not and somebody has to know, or whether it has no effect that anybody would miss. One table for all.
//
// Owns: the table.  Reads: Helm values, Deployments, records of Helm's releases, as they are given.  Never: a socket; decides whether a key that it does
// not know is harmless.
package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Effect is what becomes of a setting.
type Effect string

// The effects. Reported: it is not acted on, and what it brought about is missing.
const (
	ActedOn  Effect = "acted on"
	Reported Effect = "reported"
	NoEffect Effect = "no effect"
)

// Sort is where a setting is made.
type Sort string

// The sorts of settings.
const (
	Value       Sort = "value"
	Environment Sort = "environment"
	Flag        Sort = "flag"
)

// row is one line of the table: a key, and all keys below it that have no line of their own.
type row struct {
	key    string
	effect Effect
	here   string // the value of our chart, flag or variable, in the words of their pages; of what is not acted on: why, or what to do
	same   string // of what is reported: the value with which nothing is missing, as a rule istiod's default; empty: there is none
}

// Setting is one that was found.
type Setting struct {
	Sort   Sort   `json:"sort"`
	Key    string `json:"key"`
	Value  string `json:"value"`
	Effect Effect `json:"effect"`
	Here   string `json:"here"`
}

// tables by sort.
var tables = map[Sort][]row{Value: values, Environment: environment, Flag: flags}

// unknown is said of a key that no table has.
const unknown = "it is not known here: look it up in the release notes of the istiod that has it"

// judge completes a setting.
func judge(s Setting) Setting {
	s.Effect, s.Here = Reported, unknown
	best := -1
	for _, r := range tables[s.Sort] {
		if below(r.key, s.Key) && len(r.key) > best {
			best, s.Effect, s.Here = len(r.key), r.effect, r.here
			if r.same != "" && r.same == s.Value {
				s.Effect, s.Here = NoEffect, "with this value nothing is missing"
			}
		}
	}
	return s
}

// below says whether a line is about a key: it is the same, or a path that leads to it; * at its end stands for any rest of a word.
func below(line, key string) bool {
	if stem, is := strings.CutSuffix(line, "*"); is {
		return strings.HasPrefix(key, stem)
	}
	return key == line || strings.HasPrefix(key, line+".")
}

// aliases are prefixes of values that say the same without them: Istio's chart puts all of its own values below one key for Helm's sake, and had them
// below pilot before 1.24.
var aliases = []string{"_internal_defaults_do_not_set.", "pilot.", "defaults."}

// FromValues judges Helm values, as they are in a file. Arguments and variables in them are settings of their own.
func FromValues(tree map[string]any) []Setting {
	var all []Setting
	var args []string
	walk("", tree, func(key, value string) {
		for _, alias := range aliases {
			key = strings.TrimPrefix(key, alias)
		}
		switch name, is := strings.CutPrefix(key, "env."); {
		case is:
			all = append(all, Setting{Sort: Environment, Key: name, Value: value})
		case strings.HasPrefix(key, "extraContainerArgs["):
			args = append(args, value)
		default:
			all = append(all, Setting{Sort: Value, Key: key, Value: value})
		}
	})
	return sorted(append(all, fromArgs(args)...))
}

// walk calls f for each leaf: what is no map, or an empty one.
func walk(path string, v any, f func(key, value string)) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			at := key
			if path != "" {
				at = path + "." + key
			}
			walk(at, v[key], f)
		}
	case []any:
		if strings.HasSuffix(path, "extraContainerArgs") {
			for i, one := range v {
				f(fmt.Sprintf("%s[%d]", path, i), fmt.Sprint(one))
			}
			return
		}
		if len(v) > 0 {
			f(path, fmt.Sprintf("%d entries", len(v)))
		}
	case nil:
	default:
		if text := fmt.Sprint(v); text != "" {
			f(path, text)
		}
	}
}

// fromArgs judges arguments of pilot-discovery. The command's name is none; an argument without a value is true, unless the next one is its value.
func fromArgs(args []string) (all []Setting) {
	for i := 0; i < len(args); i++ {
		name, is := strings.CutPrefix(args[i], "--")
		if !is {
			if short, isShort := strings.CutPrefix(args[i], "-"); isShort {
				name = short
			} else {
				continue
			}
		}
		name, value, has := strings.Cut(name, "=")
		if !has {
			if value = "true"; i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
				i++
				value = args[i]
			}
		}
		all = append(all, Setting{Sort: Flag, Key: name, Value: value})
	}
	return sorted(all)
}

// fromEnvironment judges variables.
func fromEnvironment(env map[string]string) (all []Setting) {
	for name, value := range env {
		all = append(all, Setting{Sort: Environment, Key: name, Value: value})
	}
	return sorted(all)
}

// sorted judges settings, and puts what is to be known first.
func sorted(all []Setting) []Setting {
	for i := range all {
		all[i] = judge(all[i])
	}
	order := map[Effect]int{Reported: 0, ActedOn: 1, NoEffect: 2}
	slices.SortStableFunc(all, func(a, b Setting) int {
		return cmp.Or(cmp.Compare(order[a.Effect], order[b.Effect]), cmp.Compare(a.Sort, b.Sort), cmp.Compare(a.Key, b.Key))
	})
	return all
}

// Merge puts several lists together, each setting once.
func Merge(lists ...[]Setting) []Setting {
	all := sorted(slices.Concat(lists...))
	return slices.CompactFunc(all, func(a, b Setting) bool { return a == b })
}

// Page is the table as a part of a page: a table in Markdown for each sort.
func Page() string {
	var b strings.Builder
	for _, of := range []struct {
		sort    Sort
		heading string
	}{{Value, "Helm values"}, {Environment, "Environment"}, {Flag, "Flags"}} {
		fmt.Fprintf(&b, "### %s\n\n| istiod's | effect | here |\n|---|---|---|\n", of.heading)
		for _, r := range tables[of.sort] {
			here := r.here
			if r.same != "" {
				here += "; with `" + r.same + "` nothing is missing"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.key, r.effect, here)
		}
		b.WriteString("\n")
	}
	return b.String()
}
