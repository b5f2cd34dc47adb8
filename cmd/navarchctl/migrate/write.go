package migrate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Values translates ActedOn settings into values of Navarch's chart. The result tree has these values as maps for YAML.
// It is empty if there is nothing to translate, and shares parts with the settings. The result others has all settings
// that were not translated, sorted by importance, Decide first. It is nil if there are no such settings.
func Values(all []Setting) (tree map[string]any, others []Setting) {
	tree = map[string]any{}
	scale := map[string]any{}
	for _, sort := range []Sort{Value, Environment, Flag, Operator} { // of equivalent settings the last wins, as in istiod
		for _, s := range all {
			if s.Sort == sort && (s.Effect != ActedOn || !s.carryInto(tree, scale)) {
				others = append(others, s)
			}
		}
	}
	slices.SortStableFunc(others, byEffect)
	if len(scale) > 0 {
		tree["deployments"] = []any{deployment(scale)}
	}
	return tree, others
}

// under reports whether the key of a setting is equal to the argument key or below it. Parts of a value's path may
// contain dots, so they are compared one by one.
func (s Setting) under(key string) bool {
	parts := strings.Count(key, ".") + 1
	return below(key, s.Key) && (s.Sort != Value || len(s.path) >= parts && strings.Join(s.path[:parts], ".") == key)
}

// carryInto writes a setting to the chart's values. If its key is in the map scaling, it writes the setting to the
// argument scale instead. It returns false if the chart has no equivalent for the setting or its value.
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
	if s.raw == "" && best == s.Key { // an empty value means the default, which the chart has too
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

// set assigns a value at a path of a tree. It creates missing maps, and replaces values that are not maps.
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

// truth parses a boolean, also one that is given as text.
func truth(v any) (any, bool) {
	is, err := strconv.ParseBool(fmt.Sprint(v))
	return is, err == nil
}

// untruth parses a boolean as truth does, and negates it.
func untruth(v any) (any, bool) {
	is, err := strconv.ParseBool(fmt.Sprint(v))
	return !is, err == nil
}

// seconds parses a duration such as "30s" to a number of seconds. It accepts whole seconds, at least one.
func seconds(v any) (any, bool) {
	d, err := time.ParseDuration(fmt.Sprint(v))
	return int(d.Seconds()), err == nil && d >= time.Second && d%time.Second == 0
}

// plaintext returns true for the address of plain-text xDS. It accepts only :15010, the port that the chart opens.
func plaintext(v any) (any, bool) { return true, v == ":15010" }
