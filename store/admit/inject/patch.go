package inject

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// maxPatch bounds the JSON patch of a Pod, in bytes.
const maxPatch = 1 << 20

// operation is one operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	From  string          `json:"from,omitempty"`  // of a move
	Value json.RawMessage `json:"value,omitempty"` // of add and replace
}

// Patch returns the JSON patch (RFC 6902) that changes one Pod into another, or nil if the Pods are equal. The patch
// touches only differences, so fields of the document that corev1.Pod lacks stay. Elements of lists with unique names,
// such as containers, are matched by name. A changed probe is therefore one operation, instead of a removed and an
// added container. A list is replaced as a whole if more than 64 elements move, or if its elements have no unique names
// and their number changes. The error is that of encoding. The Pods are not modified.
func Patch(from, to *corev1.Pod) ([]byte, error) {
	a, err := json.Marshal(from)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(to)
	if err != nil {
		return nil, err
	}
	all, err := diff(nil, "", a, b)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return json.Marshal(all)
}

// diff appends the operations that turn a into b. The same encoder wrote both, so equal values have equal bytes and are
// not parsed.
func diff(all []operation, path string, a, b json.RawMessage) ([]operation, error) {
	switch {
	case bytes.Equal(a, b):
		return all, nil
	case a[0] == '{' && b[0] == '{':
		return diffObjects(all, path, a, b)
	case a[0] == '[' && b[0] == '[':
		return diffLists(all, path, a, b)
	}
	return append(all, operation{Op: "replace", Path: path, Value: b}), nil
}

// both decodes two values of one type.
func both[T any](a, b json.RawMessage) (x, y T, err error) {
	return x, y, errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y))
}

func diffObjects(all []operation, path string, from, to json.RawMessage) ([]operation, error) {
	a, b, err := both[map[string]json.RawMessage](from, to)
	if err != nil {
		return nil, err
	}
	for _, key := range sorted(a) {
		if _, stays := b[key]; !stays && !unwritten(key, a[key]) {
			all = append(all, operation{Op: "remove", Path: below(path, key)})
		}
	}
	for _, key := range sorted(b) {
		was, there := a[key]
		if !there || unwritten(key, was) && !bytes.Equal(was, b[key]) {
			all = append(all, operation{Op: "add", Path: below(path, key), Value: b[key]})
		} else if all, err = diff(all, below(path, key), was, b[key]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// unwritten reports whether a field of the encoded Pod may be absent from the document to which the patch is applied.
// The encoder always writes null lists and the resources of a container. Documents of API servers have these fields,
// and documents of authors usually lack them. The operation add is valid in both cases, because it replaces an existing
// field.
func unwritten(key string, value json.RawMessage) bool {
	return string(value) == "null" || key == "resources" && string(value) == "{}"
}

// diffLists compares two lists. If the elements have unique names, it first arranges them in their new order, and then
// changes each element in place. Other lists of equal length are compared by index.
func diffLists(all []operation, path string, from, to json.RawMessage) ([]operation, error) {
	a, b, err := both[[]json.RawMessage](from, to)
	if err != nil {
		return nil, err
	}
	was := a // the former values of b's elements
	is, named := namesOf(a)
	want, alsoNamed := namesOf(b)
	arranged, few := all, false
	if named && alsoNamed {
		arranged, few = arrange(all, path, is, want, b)
	}
	switch {
	case few:
		all, was = arranged, slices.Clone(b) // an added element has its final value already
		places := placesOf(is)
		for i, name := range want {
			if j, there := places[name]; there {
				was[i] = a[j]
			}
		}
	case named && alsoNamed || len(a) != len(b):
		return append(all, operation{Op: "replace", Path: path, Value: to}), nil
	}
	for i := range b {
		if all, err = diff(all, at(path, i), was[i], b[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// maxMoves bounds the moved elements of one list, because the time to move an element grows with the list's length.
const maxMoves = 64

// arrange appends operations that remove, add and move elements of a list by name, until the wanted elements are in
// order. It returns false if more than maxMoves moves are necessary.
func arrange(all []operation, path string, is, want []string, values []json.RawMessage) ([]operation, bool) {
	wanted := placesOf(want)
	var left []string // elements of the list after those in their final place
	for i := len(is) - 1; i >= 0; i-- {
		if _, stays := wanted[is[i]]; stays {
			left = append(left, is[i])
		} else {
			all = append(all, operation{Op: "remove", Path: at(path, i)})
		}
	}
	slices.Reverse(left)
	there, moved, moves := placesOf(left), map[string]bool{}, 0
	for i, name := range want {
		for len(left) > 0 && moved[left[0]] {
			left = left[1:]
		}
		switch _, kept := there[name]; {
		case !kept:
			all = append(all, operation{Op: "add", Path: at(path, i), Value: values[i]})
		case left[0] == name:
			left = left[1:]
		case moves == maxMoves:
			return nil, false
		default:
			all = append(all, operation{Op: "move", From: at(path, i+before(left, name, moved)), Path: at(path, i)})
			moved[name] = true
			moves++
		}
	}
	return all, true
}

// before counts the elements of a list that precede the given name and have not been moved.
func before(list []string, name string, moved map[string]bool) (n int) {
	for _, other := range list {
		if other == name {
			break
		}
		if !moved[other] {
			n++
		}
	}
	return n
}

func placesOf(names []string) map[string]int {
	places := make(map[string]int, len(names))
	for i, name := range names {
		places[name] = i
	}
	return places
}

// namesOf returns the names of a list's elements. The result ok is false unless all elements are objects with unique
// names.
func namesOf(list []json.RawMessage) (all []string, ok bool) {
	seen := make(map[string]bool, len(list))
	for _, e := range list {
		var object struct {
			Name string `json:"name"`
		}
		if e[0] != '{' || json.Unmarshal(e, &object) != nil || object.Name == "" || seen[object.Name] {
			return nil, false
		}
		seen[object.Name] = true
		all = append(all, object.Name)
	}
	return all, true
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

func below(path, key string) string    { return path + "/" + escape.Replace(key) }
func at(path string, index int) string { return path + "/" + strconv.Itoa(index) }
