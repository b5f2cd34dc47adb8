//go:build kube

package kube

import (
	"fmt"
	"slices"
	"strings"

	"navarch.io/navarch/store/object"
)

// names returns the existing objects of a namespace, as "Kind name", sorted. The caller has the lock.
func (e *recorder) names(namespace string) string {
	var all []string
	for id := range e.objects {
		if id.Namespace == namespace {
			all = append(all, id.Kind+" "+id.Name)
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func (e *recorder) untilNames(namespace, want string) {
	e.t.Helper()
	e.until(func() string {
		if got := e.names(namespace); got != want {
			return fmt.Sprintf("in %s there is %q, want %q", namespace, got, want)
		}
		return ""
	})
}

func (e *recorder) find(kind, namespace, name string) *object.Object {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, o := range e.objects {
		if id.Kind == kind && id.Namespace == namespace && id.Name == name {
			return o
		}
	}
	e.t.Fatalf("no %s %s/%s", kind, namespace, name)
	return nil
}
