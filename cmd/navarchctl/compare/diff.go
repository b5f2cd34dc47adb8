package compare

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
)

// difference is one field with different values. An absent value is nil. theirs is istiod's value, ours is Navarch's.
type difference struct {
	path         string // .field.list[key].field, for lists also with #count or #order; or a mark (a word, see alike)
	theirs, ours any
	around       []pair // the messages that contain the field, outermost first
}

// pair has the same message of both configurations.
type pair struct{ theirs, ours map[string]any }

// sets has the names of list fields whose order has no meaning. ordered has the names of list fields whose order is
// compared separately, as #order. rules has the names of fields with lists of RBAC rules, which are equal if they have
// the same elements in any order.
var (
	sets = []string{"domains", "cipher_suites", "application_protocols", "server_names", "prefix_ranges", "source_prefix_ranges",
		"match_subject_alt_names", "ids", "principals_set", "request_headers_to_remove", "response_headers_to_remove"}
	ordered = []string{"http_filters", "filters", "listener_filters"}
	rules   = []string{"principals", "permissions", "and_ids", "or_ids", "rules", "ids"}
)

// differ collects the differences of one resource. around has the messages that contain the field that is being
// compared.
type differ struct {
	found  []difference
	around []pair
}

// diff returns the differences of two resources that were normalised by clean. It does not change the resources.
func diff(theirs, ours any) []difference {
	var d differ
	d.values("", theirs, ours)
	return d.found
}

func (d *differ) add(path string, a, b any) {
	d.found = append(d.found, difference{path, a, b, slices.Clone(d.around)})
}

func (d *differ) values(path string, a, b any) {
	if reflect.DeepEqual(a, b) {
		return
	}
	if x, is := a.(map[string]any); is {
		if y, is := b.(map[string]any); is {
			d.messages(path, x, y)
			return
		}
	}
	if x, is := a.([]any); is {
		if y, is := b.([]any); is {
			d.lists(path, x, y)
			return
		}
	}
	d.add(path, a, b)
}

func (d *differ) messages(path string, a, b map[string]any) {
	d.around = append(d.around, pair{a, b})
	for _, k := range sortedKeys(a, b) {
		x, inA := a[k]
		y, inB := b[k]
		if !inA || !inB {
			d.add(path+"."+k, x, y)
			continue
		}
		d.values(path+"."+k, x, y)
	}
	d.around = d.around[:len(d.around)-1]
}

func (d *differ) lists(path string, a, b []any) {
	name := lastField(path)
	if slices.Contains(sets, name) || texts(a) && texts(b) {
		if x, y := without(a, b), without(b, a); len(x)+len(y) > 0 {
			d.add(path, x, y)
		}
		return
	}
	if slices.Contains(rules, name) && reflect.DeepEqual(sortedCanon(a), sortedCanon(b)) {
		return
	}
	x, y := keyed(name, a), keyed(name, b)
	if name == "routes" && len(a) != len(b) {
		d.add(path+"#count", namesOf(a), namesOf(b))
		return
	}
	for _, k := range x.keys {
		theirs := x.at[k]
		if ours, both := y.at[k]; both {
			d.values(path+"["+k+"]", theirs, ours)
		} else {
			d.add(path+"["+k+"]", theirs, nil)
		}
	}
	for _, k := range y.keys {
		if _, both := x.at[k]; !both {
			d.add(path+"["+k+"]", nil, y.at[k])
		}
	}
	if slices.Contains(ordered, name) {
		was, is := x.common(y), y.common(x)
		if !slices.Equal(was, is) {
			d.add(path+"#order", anyList(was), anyList(is))
		}
	}
}

// elements has the elements of a list by key, and the keys in the order of the list.
type elements struct {
	keys []string
	at   map[string]any
}

// common returns the keys that both lists have, in the order of e.
func (e elements) common(other elements) (keys []string) {
	for _, k := range e.keys {
		if _, both := other.at[k]; both {
			keys = append(keys, k)
		}
	}
	return keys
}

// keyed returns the elements of a list by their keys. If several elements have the same key, "~2" is appended to the
// second key, "~3" to the third, and so on.
func keyed(name string, list []any) elements {
	out := elements{at: map[string]any{}}
	seen := map[string]int{}
	for i, e := range list {
		k := key(name, e, i)
		if seen[k]++; seen[k] > 1 {
			k += fmt.Sprintf("~%d", seen[k])
		}
		out.keys = append(out.keys, k)
		out.at[k] = e
	}
	return out
}

// key returns the text that identifies an element of the list in a field. The parameter list is the name of the field.
// The text is the element's match, address, locality with priority, or name. Routes, custom tags and elements without
// such a text are identified by the index i.
func key(list string, e any, i int) string {
	place := strconv.Itoa(i)
	fields, is := e.(map[string]any)
	if !is {
		return place
	}
	name, named := fields["name"].(string)
	switch {
	case list == "filter_chains":
		if match := fields["filter_chain_match"]; match != nil {
			return canon(match)
		}
		return "{}"
	case list == "lb_endpoints":
		endpoint, _ := fields["endpoint"].(map[string]any)
		if address := endpoint["address"]; address != nil {
			return canon(address)
		}
		return canon(fields["endpoint"])
	case list == "endpoints" && (fields["locality"] != nil || fields["lb_endpoints"] != nil):
		priority := fields["priority"]
		if priority == nil {
			priority = 0
		}
		return canon([]any{fields["locality"], priority})
	case list == "routes" || list == "custom_tags":
		return place
	case list == "headers" || list == "query_parameters":
		return name + "#"
	case named:
		return name
	}
	return place
}

// lastField returns the last field of a path. If the path ends with a list element, the result includes the element's
// key in brackets. Dots in keys do not separate fields.
func lastField(path string) string {
	begin, depth := 0, 0
	for i := 0; i < len(path); i++ {
		switch path[i] {
		case '.':
			if depth == 0 {
				begin = i + 1
			}
		case '[':
			depth++
		case ']':
			depth = max(0, depth-1)
		case '"': // a quoted text in a key, which may be JSON
			if end := endOfText(path[i:]); depth > 0 && end > 0 {
				i += end
			}
		}
	}
	return path[begin:]
}

// endOfText returns the index of the quote that ends the JSON text at the beginning of s, or 0 if the text does not
// end.
func endOfText(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return 0
}

// texts reports whether all elements of a list are strings. It is true for an empty list.
func texts(list []any) bool {
	return !slices.ContainsFunc(list, func(e any) bool {
		_, is := e.(string)
		return !is
	})
}

// without returns the elements of the first list that are not in the second list, as sorted JSON texts without
// duplicates.
func without(a, b []any) []any {
	had := map[string]bool{}
	for _, e := range b {
		had[canon(e)] = true
	}
	var out []string
	for _, e := range a {
		if k := canon(e); !had[k] {
			had[k] = true
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return anyList(out)
}

func sortedCanon(list []any) (all []string) {
	for _, e := range list {
		all = append(all, canon(e))
	}
	slices.Sort(all)
	return all
}

func namesOf(list []any) (all []any) {
	for _, e := range list {
		fields, _ := e.(map[string]any)
		all = append(all, fields["name"])
	}
	return all
}

func anyList(texts []string) []any {
	all := make([]any, len(texts))
	for i, t := range texts {
		all[i] = t
	}
	return all
}

// sortedKeys returns the keys of all maps, sorted.
func sortedKeys(all ...map[string]any) (keys []string) {
	for _, m := range all {
		keys = slices.AppendSeq(keys, maps.Keys(m))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
