package migrate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Values translates ActedOn settings into values of Navarch's chart. rest lists all others, those that need a decision
// first.
func Values(all []Setting) (values map[string]any, rest []Setting) {
	values = map[string]any{}
	scale := map[string]any{}
	for _, sort := range []Sort{Value, Environment, Flag, Operator} { // of two equivalent settings the later one wins, as with istiod
		for _, s := range all {
			if s.Sort == sort && (s.Effect != ActedOn || !s.carryInto(values, scale)) {
				rest = append(rest, s)
			}
		}
	}
	slices.SortStableFunc(rest, byEffect)
	if len(scale) > 0 {
		values["deployments"] = []any{deployment(scale)}
	}
	return values, rest
}

// under reports whether a setting has a key, or is below it. Parts of a value's path may contain dots themselves.
func (s Setting) under(key string) bool {
	parts := strings.Count(key, ".") + 1
	return below(key, s.Key) && (s.Sort != Value || len(s.path) >= parts && strings.Join(s.path[:parts], ".") == key)
}

// carryInto sets the chart's values for a setting; those of scaling in a tree of their own. false: the chart has no
// such value.
func (s Setting) carryInto(values, scale map[string]any) bool {
	for key, as := range scaling {
		if s.Sort == Value && s.under(key) {
			v, is := as(s)
			if is {
				set(scale, s.path, v)
			}
			return is
		}
	}
	best, rule := "", carry{}
	for key, c := range carried[s.Sort] {
		if s.under(key) && len(key) > len(best) {
			best, rule = key, c
		}
	}
	entry, reference := s.raw.(map[string]any)
	_, list := s.raw.([]any)
	switch {
	case list && s.Sort == Environment: // a variable is a scalar
		return false
	case best == "" && s.Sort == Environment && reference:
		before, _ := values["envVarFrom"].([]any)
		values["envVarFrom"] = append(before, entry)
		return true
	case best == "" && s.Sort == Environment:
		set(values, []string{"env", s.Key}, s.raw)
		return true
	case best == "" || s.Sort == Environment && reference:
		return false
	}
	if s.raw == "" && best == s.Key { // the default
		return true
	}
	v := s.raw
	if rule.as != nil {
		is := false
		if v, is = rule.as(v); !is {
			return false
		}
	}
	var rest []string
	if s.Sort == Value {
		rest = s.path[strings.Count(best, ".")+1:]
	}
	for _, path := range rule.to {
		set(values, append(strings.Split(path, "."), rest...), v)
	}
	return true
}

// set assigns a value at a path of a tree, and creates the maps on the way.
func set(tree map[string]any, path []string, v any) {
	for _, key := range path[:len(path)-1] {
		next, is := tree[key].(map[string]any)
		if !is {
			next = map[string]any{}
			tree[key] = next
		}
		tree = next
	}
	tree[path[len(path)-1]] = v
}

// truth parses a boolean, which variables have as text.
func truth(v any) (any, bool) {
	is, err := strconv.ParseBool(fmt.Sprint(v))
	return is, err == nil
}

// untruth parses a boolean and negates it.
func untruth(v any) (any, bool) {
	is, err := strconv.ParseBool(fmt.Sprint(v))
	return !is, err == nil
}

// seconds parses a duration of whole seconds, at least one.
func seconds(v any) (any, bool) {
	d, err := time.ParseDuration(fmt.Sprint(v))
	return int(d.Seconds()), err == nil && d >= time.Second && d%time.Second == 0
}

// plaintext parses an address of plain-text xDS: the chart has one port for it.
func plaintext(v any) (any, bool) { return true, v == ":15010" }
