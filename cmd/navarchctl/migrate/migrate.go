// Package migrate classifies an istiod's settings: Helm values, flags and environment variables. For each setting it
// states one of four effects: Navarch acts on the setting, the operator has to decide first, Navarch lacks an
// equivalent, or Navarch does not need the setting. Tables list all known settings. Values translates settings into
// values of Navarch's chart.
//
// Owns: the tables.
// Reads: Helm values, Deployments, IstioOperators, and records of Helm's releases, as arguments.
// Never: opens a connection; decides whether an unknown key is harmless.
package migrate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Effect classifies a setting of istiod by its effect in Navarch.
type Effect string

// Effects. ActedOn: Values writes an equivalent, or the chart's default is equal. Decide: the operator has to choose a
// value first, and Navarch behaves differently until then. Reported: Navarch lacks the behaviour, and somebody may miss
// it. NoEffect: Navarch does not need the setting.
const (
	Decide   Effect = "decide"
	ActedOn  Effect = "acted on"
	Reported Effect = "reported"
	NoEffect Effect = "no effect"
)

// Sort is the kind of a setting: the place where istiod reads it.
type Sort string

// Kinds of settings: a Helm value, an environment variable, a flag of pilot-discovery, and a field of an IstioOperator.
const (
	Value       Sort = "value"
	Environment Sort = "environment"
	Flag        Sort = "flag"
	Operator    Sort = "operator" // a field of an IstioOperator's spec
)

// row is one line of a table. It applies to its key, and to all keys below its key that have no line of their own.
type row struct {
	// key has parts that are separated by dots. A * at the end matches any rest.
	key    string
	effect Effect
	here   string // Markdown: the equivalent in Navarch (a value, flag or variable) or, without an equivalent, a reason or advice
	// For Reported and Decide, the value that needs no action, usually istiod's default; empty: no such value.
	same string
}

// Setting is one setting of an istiod with its classification.
type Setting struct {
	Sort Sort `json:"sort"`
	// Key is the name of a flag or variable, or the path of a value or field with dots between its parts. The path of a
	// value lacks pilot and other prefixes without a meaning.
	Key string `json:"key"`
	// Value is the text of the value; "N entries" for a list, or "(from elsewhere)" for a variable that Kubernetes
	// fills in.
	Value  string `json:"value"`
	Effect Effect `json:"effect"`
	// Here is Markdown: the equivalent in Navarch or, without an equivalent, a reason or advice.
	Here string `json:"here"`

	path []string // for a Helm value, the parts of its key, which may contain dots themselves
	raw  any      // the given value; for a variable that Kubernetes fills in, its entry in env, as a map
}

// same reports whether two settings have the same kind, key, displayed value and effect.
func same(a, b Setting) bool {
	return a.Sort == b.Sort && a.Key == b.Key && a.Value == b.Value && a.Effect == b.Effect
}

// tables has the table of each kind of settings.
var tables = map[Sort][]row{Value: values, Environment: environment, Flag: flags, Operator: operator}

// unknown is the advice for a key that no table has.
const unknown = "it is not known here: look it up in the release notes of the istiod that has it"

// classify returns the setting with the effect and advice of the longest matching line in its table. A setting with an
// unknown key is Reported.
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

// orDecide returns the setting. If it is ActedOn but its value cannot be translated, its effect becomes Decide.
func (s Setting) orDecide() Setting {
	if s.Effect == ActedOn && !s.carryInto(map[string]any{}, map[string]any{}) {
		s.Effect, s.Here = Decide, "this value cannot be carried over: "+s.Here
	}
	return s
}

// below reports whether a row of a table applies to a setting. The argument line is the row's key, and the argument key
// is the setting's key. The row applies if both are equal, or if the setting's key is below the row's key. If the row's
// key ends with *, the row applies if the setting's key begins with the text before the *.
func below(line, key string) bool {
	if stem, is := strings.CutSuffix(line, "*"); is {
		return strings.HasPrefix(key, stem)
	}
	return key == line || strings.HasPrefix(key, line+".")
}

// aliases lists words that have no meaning at the beginning of a value's path. For technical reasons of Helm, Istio's
// chart has all of its values below one such key. Before 1.24, values of istiod itself were below pilot.
var aliases = []string{"_internal_defaults_do_not_set", "pilot", "defaults"}

// withoutAlias returns the path of a value without leading aliases. It never removes the last part.
func withoutAlias(path []string) []string {
	for _, alias := range aliases {
		if len(path) > 1 && path[0] == alias {
			path = path[1:]
		}
	}
	return path
}

// FromValues classifies Helm values of the chart istiod. Flags and variables in them become settings of kind Flag and
// Environment. Null values are left out, and so are empty maps, lists and texts, except below meshConfig and
// global.proxy. The result is sorted by importance (Decide, Reported, ActedOn, NoEffect), then by kind and key. It is
// nil if there are no settings. Settings keep references to parts of tree.
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

// meant lists the values below which an empty value has a meaning, for example "tracing: {}" of a ProxyConfig.
var meant = []string{"meshConfig", "global.proxy"}

// walk calls f for each leaf of v, in the order of keys. A list is a leaf. walk skips null. It also skips empty maps,
// lists and texts, except below the paths in meant.
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

// elsewhere is displayed as the value of a variable that Kubernetes fills in.
const elsewhere = "(from elsewhere)"

// fromReferences returns a setting for each variable whose value comes from a Secret, a ConfigMap or a field. The
// settings are not classified yet.
func fromReferences(list []any) (all []Setting) {
	for _, one := range list {
		entry, _ := one.(map[string]any)
		name, _ := entry["name"].(string)
		all = append(all, Setting{Sort: Environment, Key: name, Value: elsewhere, raw: entry})
	}
	return all
}

// fromArgs classifies arguments of pilot-discovery. The name of the command is skipped. A flag without "=" has the next
// argument as its value. If the next argument is missing or begins with "-", the value is "true".
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

// sorted classifies the settings in place and returns them sorted by importance, kind and key.
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

// byEffect compares settings by importance: Decide, Reported, ActedOn, NoEffect.
func byEffect(a, b Setting) int {
	order := []Effect{Decide, Reported, ActedOn, NoEffect}
	return cmp.Compare(slices.Index(order, a.Effect), slices.Index(order, b.Effect))
}

// Merge joins lists of settings, classifies them again, and sorts them by importance, then by kind and key. Of several
// settings with equal kind, key, value and effect, Merge keeps the last one, because Values uses the last one. Merge
// does not change the lists. Without settings it returns nil.
func Merge(lists ...[]Setting) []Setting {
	all := sorted(slices.Concat(lists...))
	kept := all[:0]
	for i, s := range all {
		if !slices.ContainsFunc(all[i+1:], func(later Setting) bool { return same(s, later) }) {
			kept = append(kept, s)
		}
	}
	return kept
}

// Page returns all tables in Markdown, one for each kind of settings.
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
