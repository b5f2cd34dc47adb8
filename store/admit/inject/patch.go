package inject

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from,omitempty"`  // of a move
	Value *any   `json:"value,omitempty"` // of add and replace; it may be null, which is written
}

// Patch is the JSON patch from one Pod to another; nil: they are the same. It touches nothing but what differs: fields that this build does not know
// stay, and containers are matched by name, so that a rewritten probe is one operation, not a container that is removed and added.
func Patch(from, to *corev1.Pod) ([]byte, error) {
	a, err := toMap(from)
	if err != nil {
		return nil, err
	}
	b, err := toMap(to)
	if err != nil {
		return nil, err
	}
	all := diff(nil, "", a, b)
	if len(all) == 0 {
		return nil, nil
	}
	return json.Marshal(all)
}

func diff(all []operation, path string, a, b any) []operation {
	switch x := a.(type) {
	case map[string]any:
		if y, is := b.(map[string]any); is {
			return diffObjects(all, path, x, y)
		}
	case []any:
		if y, is := b.([]any); is {
			return diffLists(all, path, x, y)
		}
	default:
		if a == b { // strings, numbers and the like; of b's objects and lists the type differs
			return all
		}
	}
	return append(all, operation{Op: "replace", Path: path, Value: &b})
}

func diffObjects(all []operation, path string, a, b map[string]any) []operation {
	for _, key := range sorted(a) {
		if _, stays := b[key]; !stays {
			all = append(all, operation{Op: "remove", Path: below(path, key)})
		}
	}
	for _, key := range sorted(b) {
		if was, there := a[key]; there {
			all = diff(all, below(path, key), was, b[key])
		} else {
			value := b[key]
			all = append(all, operation{Op: "add", Path: below(path, key), Value: &value})
		}
	}
	return all
}

// diffLists first brings the elements of a that stay into the order of b, then changes them in their places.
func diffLists(all []operation, path string, a, b []any) []operation {
	from, ok := namesOf(a)
	to, both := namesOf(b)
	if !ok || !both {
		if len(a) != len(b) {
			var value any = b
			return append(all, operation{Op: "replace", Path: path, Value: &value})
		}
		for i := range a {
			all = diff(all, at(path, i), a[i], b[i])
		}
		return all
	}
	was := map[string]any{}
	for i, name := range from {
		was[name] = a[i]
	}
	for i := len(from) - 1; i >= 0; i-- {
		if !slices.Contains(to, from[i]) {
			all = append(all, operation{Op: "remove", Path: at(path, i)})
			from = slices.Delete(from, i, i+1)
		}
	}
	for i, name := range to {
		switch j := slices.Index(from, name); {
		case j < 0:
			all = append(all, operation{Op: "add", Path: at(path, i), Value: &b[i]})
			from = slices.Insert(from, i, name)
		case j != i:
			all = append(all, operation{Op: "move", From: at(path, j), Path: at(path, i)})
			from = slices.Insert(slices.Delete(from, j, j+1), i, name)
		}
	}
	for i, name := range to {
		if x, there := was[name]; there {
			all = diff(all, at(path, i), x, b[i])
		}
	}
	return all
}

// namesOf are the names of a list's elements; false: they have none, or not each its own.
func namesOf(list []any) (all []string, ok bool) {
	seen := map[string]bool{}
	for _, e := range list {
		object, _ := e.(map[string]any)
		name, is := object["name"].(string)
		if !is || seen[name] {
			return nil, false
		}
		seen[name] = true
		all = append(all, name)
	}
	return all, true
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

func below(path, key string) string    { return path + "/" + escape.Replace(key) }
func at(path string, index int) string { return path + "/" + strconv.Itoa(index) }
