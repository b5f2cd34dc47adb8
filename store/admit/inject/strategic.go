package inject

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// merge merges an overlay onto a Pod as a strategic merge patch. It changes both maps, so only the result may be used.
// A directive is a key that begins with $, such as $patch. If the parameter directives is true, an overlay with
// directives is merged by the library of Kubernetes. The library's time grows with the square of a list's length. If
// the parameter is false, directives are plain data, because a Pod's author may have written them. The function fails
// if a list cannot be merged, or if the library fails.
func merge(onto, overlay map[string]any, directives bool) (map[string]any, error) {
	if directives && directed(overlay) {
		return strategicpatch.StrategicMergeMapPatchUsingLookupPatchMeta(onto, overlay, podSchema)
	}
	return onto, mergeMap(onto, overlay, podSchema)
}

var directive = regexp.MustCompile(`\$(patch|retainKeys|setElementOrder|deleteFromPrimitiveList)\b`)

// mayDirect reports whether a text names a directive of strategic merge patches. The text is a template or the Helm
// values.
func mayDirect(text string) bool { return directive.MatchString(text) }

// directed reports whether a value may contain a directive of strategic merge patches: a key that begins with $.
func directed(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		for key, below := range v {
			if strings.HasPrefix(key, "$") || directed(below) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, directed)
	}
	return false
}

func mergeMap(onto, overlay map[string]any, schema strategicpatch.LookupPatchMeta) error {
	for key, over := range overlay {
		was, there := onto[key]
		switch {
		case over == nil:
			delete(onto, key)
			continue
		case !there || reflect.TypeOf(was) != reflect.TypeOf(over):
			onto[key] = withoutNulls(over)
			continue
		}
		switch over := over.(type) {
		case map[string]any:
			below, meta, err := schema.LookupPatchMetadataForStruct(key)
			if err != nil {
				return err
			}
			if slices.Contains(meta.GetPatchStrategies(), "replace") {
				onto[key] = over
			} else if err := mergeMap(was.(map[string]any), over, below); err != nil {
				return err
			}
		case []any:
			below, meta, err := schema.LookupPatchMetadataForSlice(key)
			if err != nil {
				return err
			}
			if !slices.Contains(meta.GetPatchStrategies(), "merge") {
				onto[key] = over
			} else if onto[key], err = mergeList(was.([]any), over, below, meta.GetPatchMergeKey()); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		default:
			onto[key] = over
		}
	}
	return nil
}

// withoutNulls removes null values from maps, recursively.
func withoutNulls(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, below := range v {
			if below == nil {
				delete(v, key)
			} else {
				withoutNulls(below)
			}
		}
	case []any:
		for _, below := range v {
			withoutNulls(below)
		}
	}
	return value
}

// mergeList merges two lists of objects with the given key, or of scalars if key is empty. The overlay's elements keep
// the overlay's order. An element that only the Pod has comes before the first overlay element that followed it in the
// Pod's list. The error names an element without a scalar key.
func mergeList(onto, overlay []any, schema strategicpatch.LookupPatchMeta, key string) ([]any, error) {
	was, is, err := namesIn(onto, key)
	if err != nil {
		return nil, err
	}
	over, wanted, err := namesIn(overlay, key)
	if err != nil {
		return nil, err
	}
	at := maps.Clone(is) // first index of each name, in was and the added elements
	for _, e := range over {
		place, there := at[e.name]
		if !there {
			at[e.name] = len(was)
			was = append(was, e)
		} else if key != "" {
			if err := mergeMap(was[place].value.(map[string]any), e.value.(map[string]any), schema); err != nil {
				return nil, err
			}
		}
	}
	var other, laid []named
	for i, e := range was {
		if _, of := wanted[e.name]; key == "" && at[e.name] != i {
			continue // a repeated scalar is dropped
		} else if of {
			laid = append(laid, e)
		} else {
			other = append(other, e)
		}
	}
	first := func(in map[any]int) func(a, b named) int {
		return func(a, b named) int { return in[a.name] - in[b.name] }
	}
	slices.SortStableFunc(laid, first(wanted))
	slices.SortStableFunc(other, first(is))
	merged := make([]any, 0, len(was))
	for _, e := range laid {
		if place, there := is[e.name]; there {
			for ; len(other) > 0 && is[other[0].name] < place; other = other[1:] {
				merged = append(merged, other[0].value)
			}
		}
		merged = append(merged, e.value)
	}
	for _, e := range other {
		merged = append(merged, e.value)
	}
	return merged, nil
}

// named is an element of a list with its identity: the value of the merge key, or the element itself.
type named struct{ name, value any }

// namesIn returns a list's elements with their names, and the first index of each name. An error names an element
// without a scalar name.
func namesIn(list []any, key string) (all []named, first map[any]int, err error) {
	first = map[any]int{}
	for i, e := range list {
		name := e
		if key != "" {
			object, _ := e.(map[string]any)
			if name = object[key]; name == nil {
				return nil, nil, fmt.Errorf("element %d has no %s", i, key)
			}
		}
		switch name.(type) {
		case map[string]any, []any:
			return nil, nil, fmt.Errorf("element %d: the value that identifies it is not a scalar", i)
		}
		all = append(all, named{name, e})
		if _, twice := first[name]; !twice {
			first[name] = i
		}
	}
	return all, first, nil
}
