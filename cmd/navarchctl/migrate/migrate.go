// Package migrate classifies an istiod's settings: Helm values, flags and environment variables. It states whether
// Navarch acts on a setting, needs a decision first, lacks an equivalent, or needs none. One table has all settings.
// Values translates settings into values of Navarch's chart.
//
// Owns: the table.
// Reads: Helm values, Deployments, and records of Helm's releases, as arguments.
// Never: uses a socket; decides whether an unknown key is harmless.
package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Effect is the effect of a setting with Navarch.
type Effect string

// Effects. ActedOn: Values writes it. Decide: Navarch does the same after somebody has chosen a value, and something
// else until then. Reported: it has no effect here, and its result is missing.
const (
	Decide   Effect = "decide"
	ActedOn  Effect = "acted on"
	Reported Effect = "reported"
	NoEffect Effect = "no effect"
)

// Sort is the kind of a setting.
type Sort string

// Kinds of settings.
const (
	Value       Sort = "value"
	Environment Sort = "environment"
	Flag        Sort = "flag"
	Operator    Sort = "operator" // a field of an IstioOperator's spec
)

// row is one line of the table: a key, and all keys below it without a line of their own.
type row struct {
	key    string
	effect Effect
	here   string // our chart's value, flag or variable, in the words of their pages; of a setting without effect: the reason, or advice
	same   string // of Reported and Decide: the value with which nothing is missing, usually istiod's default; empty: no such value
}

// Setting is a setting that was found.
type Setting struct {
	Sort   Sort   `json:"sort"`
	Key    string `json:"key"`
	Value  string `json:"value"`
	Effect Effect `json:"effect"`
	Here   string `json:"here"`

	path []string // of a value: the parts of its key, which may contain dots
	raw  any      // the given value; of a variable that Kubernetes fills in: its entry, a map
}

// same reports whether two settings are equal for a reader.
func same(a, b Setting) bool { return a.Sort == b.Sort && a.Key == b.Key && a.Value == b.Value }

// tables by sort.
var tables = map[Sort][]row{Value: values, Environment: environment, Flag: flags, Operator: operator}

// unknown is the text for a key that no table has.
const unknown = "it is not known here: look it up in the release notes of the istiod that has it"

// classify completes a setting from the tables.
func classify(s Setting) Setting {
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

// orDecide turns an ActedOn setting without a usable value into Decide.
func (s Setting) orDecide() Setting {
	if s.Effect == ActedOn && !s.carryInto(map[string]any{}, map[string]any{}) {
		s.Effect, s.Here = Decide, "this value cannot be carried over: "+s.Here
	}
	return s
}

// below reports whether a line applies to a key: it is equal, or a path that leads to it; * at its end matches the rest
// of a word.
func below(line, key string) bool {
	if stem, is := strings.CutSuffix(line, "*"); is {
		return strings.HasPrefix(key, stem)
	}
	return key == line || strings.HasPrefix(key, line+".")
}

// aliases are first parts of values without a meaning of their own. Istio's chart puts all of its values below one key
// for Helm's sake, and had them below pilot before 1.24.
var aliases = []string{"_internal_defaults_do_not_set", "pilot", "defaults"}

// withoutAlias removes an alias from the path of a value.
func withoutAlias(path []string) []string {
	for _, alias := range aliases {
		if len(path) > 1 && path[0] == alias {
			path = path[1:]
		}
	}
	return path
}

// FromValues classifies the Helm values of a file. Arguments and variables in them are settings of their own.
func FromValues(tree map[string]any) []Setting {
	var all []Setting
	walk(nil, tree, func(path []string, v any) {
		path = withoutAlias(path)
		list, isList := v.([]any)
		switch {
		case path[0] == "env" && len(path) > 1:
			all = append(all, Setting{Sort: Environment, Key: strings.Join(path[1:], "."), Value: fmt.Sprint(v), raw: v})
		case path[0] == "envVarFrom" && isList:
			all = append(all, fromReferences(list)...)
		case path[0] == "extraContainerArgs" && isList:
			all = append(all, fromArgs(texts(list))...)
		case isList:
			all = append(all, Setting{Sort: Value, Key: strings.Join(path, "."), Value: fmt.Sprintf("%d entries", len(list)), path: path, raw: v})
		default:
			all = append(all, Setting{Sort: Value, Key: strings.Join(path, "."), Value: fmt.Sprint(v), path: path, raw: v})
		}
	})
	return sorted(all)
}

// meant lists the values below which an empty value has a meaning: `tracing: {}` of a ProxyConfig, `includeIPRanges:
// ""`.
var meant = []string{"meshConfig", "global.proxy"}

// walk calls f for each leaf. Empty maps, lists and texts are skipped, except below the values of meant.
func walk(path []string, v any, f func(path []string, v any)) {
	full := strings.Join(withoutAlias(path), ".")
	empty := slices.ContainsFunc(meant, func(above string) bool { return strings.HasPrefix(full, above+".") })
	switch v := v.(type) {
	case map[string]any:
		if empty && len(v) == 0 {
			f(path, v)
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			walk(append(slices.Clone(path), key), v[key], f)
		}
	case []any:
		if len(v) > 0 || empty {
			f(path, v)
		}
	case nil:
	default:
		if v != "" || empty {
			f(path, v)
		}
	}
}

func texts(list []any) (all []string) {
	for _, one := range list {
		all = append(all, fmt.Sprint(one))
	}
	return all
}

// elsewhere replaces the value of a variable that Kubernetes fills in.
const elsewhere = "(from elsewhere)"

// fromReferences classifies variables with values from Secrets, ConfigMaps or fields.
func fromReferences(list []any) (all []Setting) {
	for _, one := range list {
		entry, _ := one.(map[string]any)
		name, _ := entry["name"].(string)
		all = append(all, Setting{Sort: Environment, Key: name, Value: elsewhere, raw: entry})
	}
	return all
}

// fromArgs classifies arguments of pilot-discovery. The command's name is skipped. An argument without a value is true,
// unless the next one is its value.
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
		all = append(all, Setting{Sort: Flag, Key: name, Value: value, raw: value})
	}
	return sorted(all)
}

// sorted classifies settings, and puts important ones first.
func sorted(all []Setting) []Setting {
	for i := range all {
		all[i] = classify(all[i]).orDecide()
	}
	scaledTogether(all)
	slices.SortStableFunc(all, func(a, b Setting) int {
		return cmp.Or(byEffect(a, b), cmp.Compare(a.Sort, b.Sort), cmp.Compare(a.Key, b.Key))
	})
	return all
}

// byEffect orders settings by importance.
func byEffect(a, b Setting) int {
	order := []Effect{Decide, Reported, ActedOn, NoEffect}
	return cmp.Compare(slices.Index(order, a.Effect), slices.Index(order, b.Effect))
}

// Merge joins several lists, each setting once.
func Merge(lists ...[]Setting) []Setting {
	all := sorted(slices.Concat(lists...))
	return slices.CompactFunc(all, same)
}

// Page returns the tables in Markdown, one for each kind.
func Page() string {
	var b strings.Builder
	for _, of := range []struct {
		sort    Sort
		heading string
	}{{Value, "Helm values"}, {Environment, "Environment"}, {Flag, "Flags"}, {Operator, "IstioOperator"}} {
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
