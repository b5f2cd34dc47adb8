package kube

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// Limits bound what is kept of a cluster: what its API server says fills nobody's memory. Zero means the default.
type Limits struct {
	Object  int // bytes of an object, without what no record needs; default 3 MiB, which is what an API server takes (--max-request-bytes)
	Objects int // of one kind; default 200,000: Kubernetes itself is made for 150,000 Pods (https://kubernetes.io/docs/setup/best-practices/cluster-large/)
	Bytes   int // of all objects, each with objectCost; default 4 GiB for the config cluster, 512 MiB for another one
}

// objectCost is what an object costs in memory beside its text, in bytes.
const objectCost = 1 << 10

// maxLeft is how many objects of a kind are left out one by one; where there are more the whole list is.
const maxLeft = 1000

func (l Limits) orDefault(cluster string) Limits {
	bytes := 4 << 30
	if cluster != "" {
		bytes = 512 << 20
	}
	return Limits{Object: cmp.Or(l.Object, 3<<20), Objects: cmp.Or(l.Objects, 200_000), Bytes: cmp.Or(l.Bytes, bytes)}
}

// errTooMuch is why a list is not taken, nor any part of it.
type errTooMuch string

func (e errTooMuch) Error() string { return string(e) }

func isTooMuch(err error) bool {
	var much errTooMuch
	return errors.As(err, &much)
}

// amount is what was read of a list that is not complete yet.
type amount struct{ objects, bytes int }

// admit says whether a list may go on that has so many objects more; first: they are the first ones.
func (f *follower) admit(objects, bytes int, first bool) error {
	s := f.source
	s.mu.Lock()
	defer s.mu.Unlock()
	if first {
		f.listing = amount{}
	}
	f.listing.objects += objects
	f.listing.bytes += bytes + objects*objectCost
	if f.listing.objects > s.Limits.Objects {
		return errTooMuch(fmt.Sprintf("there are more than %d", s.Limits.Objects))
	}
	total := f.listing.bytes
	for other := range s.followers() {
		if other != f {
			total += max(other.table.bytes, other.listing.bytes)
		}
	}
	if total > s.Limits.Bytes {
		return errTooMuch(fmt.Sprintf("with them the objects of this cluster would have more than %d MiB", s.Limits.Bytes>>20))
	}
	return nil
}

// bytes is what all objects cost. With the lock.
func (s *Source) bytes() (total int) {
	for f := range s.followers() {
		total += f.table.bytes
	}
	return total
}

// exceeds says why an object of a size is left out as it is now; empty: it is not. With the lock.
func (f *follower) exceeds(n name, size int) string {
	s := f.source
	if size > s.Limits.Object {
		return fmt.Sprintf("it has %d bytes, and at most %d are read", size, s.Limits.Object)
	}
	before := f.table.all[n]
	if before.now == nil && f.table.now >= s.Limits.Objects {
		return fmt.Sprintf("there are %d others of its kind, and no more are read", f.table.now)
	}
	if more := size + objectCost - before.cost(); more > 0 && s.bytes()+more > s.Limits.Bytes {
		return fmt.Sprintf("the objects of this cluster would have more than %d MiB", s.Limits.Bytes>>20)
	}
	return ""
}

// leaveOut keeps an object as it was emitted last, which what is stored says too. With the lock.
func (f *follower) leaveOut(n name, why string) {
	switch before, known := f.left[n]; {
	case known && before == why:
	case !known && len(f.left) >= maxLeft:
		f.leftMore++
	default:
		f.left[n] = why
		f.source.decide(object.Event{Op: object.Broken, ID: f.id(n), Location: location, Problem: why})
	}
}

// tooManyLeft says why a list is not taken of which too many objects would be left out: what is stored of those that are not emitted would be taken for
// gone. With the lock.
func (f *follower) tooManyLeft(list []any) error {
	large := 0
	for _, o := range list {
		if itemOf(o).size > f.source.Limits.Object {
			large++
		}
	}
	if large > maxLeft {
		return errTooMuch(fmt.Sprintf("%d of them have more than %d bytes", large, f.source.Limits.Object))
	}
	return nil
}

// takeBack says that an object is read again; same: it is as it was emitted last. With the lock.
func (f *follower) takeBack(n name, same bool) {
	if _, was := f.left[n]; !was {
		return
	}
	delete(f.left, n)
	switch e := f.table.all[n]; {
	case !same: // it is judged, and emitted
	case e.emitted != nil:
		f.source.decide(object.Event{Op: object.Put, ID: f.id(n), Object: e.emitted, Location: location})
	case e.now == nil:
		f.source.decide(object.Event{Op: object.Delete, ID: f.id(n), Location: location})
	}
}

// takeBackAbsent forgets those that were left out and that a complete list has not. With the lock.
func (f *follower) takeBackAbsent(there map[name]bool) {
	f.leftMore = 0
	for n := range f.left {
		if !there[n] {
			f.takeBack(n, f.table.all[n].now == nil)
		}
	}
}

// leftOut names the objects that are left out; those after the first hundred of a kind are counted. With the lock.
func (f *follower) leftOut(say func(id object.ID, code problem.Code, message string)) {
	const shown = 100
	names := make([]name, 0, len(f.left))
	for n := range f.left {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b name) int { return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name)) })
	for _, n := range names[:min(len(names), shown)] {
		say(f.id(n), problem.NotAllowed, "its newest version is not read: "+f.left[n]+"; what was read before stands")
	}
	if more := len(names) - min(len(names), shown) + f.leftMore; more > 0 {
		say(f.kind.of(), problem.NotAllowed, fmt.Sprintf("%d more are not read, since they are too large, or too many; what was read of them before stands", more))
	}
}

// weight is how many bytes an object has as text, roughly.
func weight(o runtime.Object) int {
	switch o := o.(type) {
	case interface{ Size() int }: // of Kubernetes' own kinds
		return o.Size()
	case *unstructured.Unstructured:
		return weightOf(o.Object)
	}
	return 0
}

func weightOf(value any) int {
	switch v := value.(type) {
	case map[string]any:
		n := 2
		for key, value := range v {
			n += len(key) + 4 + weightOf(value)
		}
		return n
	case []any:
		n := 2
		for _, value := range v {
			n += 1 + weightOf(value)
		}
		return n
	case string:
		return len(v) + 2
	}
	return 8
}
