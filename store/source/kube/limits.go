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

// Limits bounds the memory for the objects of one cluster, whatever its API server returns. A field that is zero has
// its default. An object beyond a limit is left out, and its previous state remains in effect. A list beyond Objects or
// Bytes is refused as a whole.
type Limits struct {
	// Object is the size of the largest object that is read, in bytes without dropped fields. The default is 3 MiB, the
	// limit of an API server (--max-request-bytes).
	Object int
	// Objects is the largest number of objects of one kind; default 200,000. Kubernetes itself is tested up to 150,000
	// Pods (https://kubernetes.io/docs/setup/best-practices/cluster-large/).
	Objects int
	// Bytes is the largest size of all objects together, in bytes, with 1 KiB (objectCost) added for each object. The
	// default is 4 GiB for the config cluster, and 512 MiB for another cluster.
	Bytes int
}

// objectCost is the memory of an object in addition to its JSON, in bytes.
const objectCost = 1 << 10

// maxLeft is the maximum number of objects of a kind that are left out with an event for each. If a list has more
// objects above Limits.Object, the whole list is refused.
const maxLeft = 1000

// orDefault returns the limits with the defaults for a cluster (empty: the config cluster).
func (l Limits) orDefault(cluster string) Limits {
	bytes := 4 << 30
	if cluster != "" {
		bytes = 512 << 20
	}
	return Limits{Object: cmp.Or(l.Object, 3<<20), Objects: cmp.Or(l.Objects, 200_000), Bytes: cmp.Or(l.Bytes, bytes)}
}

// errTooMuch is the reason for which a list is refused as a whole.
type errTooMuch string

// Error returns the reason.
func (e errTooMuch) Error() string { return string(e) }

// isTooMuch reports whether an error contains an errTooMuch.
func isTooMuch(err error) bool {
	var much errTooMuch
	return errors.As(err, &much)
}

// amount is the size of the received part of a list.
type amount struct{ objects, bytes int }

// admit adds a page to the list in progress, and returns errTooMuch if the list exceeds a limit. The parameter
// firstPage reports whether the page is the first of its list.
func (f *follower) admit(objects, bytes int, firstPage bool) error {
	s := f.source
	s.mu.Lock()
	defer s.mu.Unlock()
	if firstPage {
		f.listing = amount{}
	}
	f.listing.objects += objects
	f.listing.bytes += bytes + objects*objectCost
	if f.listing.objects > s.Limits.Objects {
		return errTooMuch(fmt.Sprintf("there are more than %d objects", s.Limits.Objects))
	}
	total := f.listing.bytes
	for other := range s.followers() {
		if other != f {
			total += max(other.table.bytes, other.listing.bytes)
		}
	}
	if total > s.Limits.Bytes {
		return errTooMuch(fmt.Sprintf("with this list, the objects of this cluster would exceed %d MiB", s.Limits.Bytes>>20))
	}
	return nil
}

// bytes returns the memory of all objects, in bytes. The caller has locked Source.mu.
func (s *Source) bytes() (total int) {
	for f := range s.followers() {
		total += f.table.bytes
	}
	return total
}

// exceeds returns the reason for which an object of this size is left out. The result is empty if the object is within
// the limits. The caller has locked Source.mu.
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
		return fmt.Sprintf("the objects of this cluster would exceed %d MiB", s.Limits.Bytes>>20)
	}
	return ""
}

// leaveOut retains the emitted state of an object, and emits a Broken event with the reason. Beyond maxLeft objects it
// only counts the object. The caller has locked Source.mu.
func (f *follower) leaveOut(n name, why string) {
	switch before, known := f.left[n]; {
	case known && before == why:
	case !known && len(f.left) >= maxLeft:
		f.leftMore++
	default:
		f.left[n] = why
		f.source.enqueue(object.Event{Op: object.Broken, ID: f.id(n), Location: location, Problem: why})
	}
}

// tooManyLeft returns errTooMuch if more than maxLeft objects of a list exceed Limits.Object. The caller then refuses
// the list, because objects without an event would count as deleted. The caller has locked Source.mu.
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

// readmit ends the exclusion of an object, and emits its state again, to supersede the Broken event. The parameter
// unchanged reports whether the object's state is unchanged. The caller has locked Source.mu.
func (f *follower) readmit(n name, unchanged bool) {
	if _, was := f.left[n]; !was {
		return
	}
	delete(f.left, n)
	switch e := f.table.all[n]; {
	case !unchanged: // set marks it for emission
	case e.emitted != nil:
		f.source.enqueue(object.Event{Op: object.Put, ID: f.id(n), Object: e.emitted, Location: location})
	case e.now == nil:
		f.source.enqueue(object.Event{Op: object.Delete, ID: f.id(n), Location: location})
	}
}

// readmitAbsent ends the exclusion of objects that a complete list lacks. The caller has locked Source.mu.
func (f *follower) readmitAbsent(there map[name]bool) {
	f.leftMore = 0
	for n := range f.left {
		if !there[n] {
			f.readmit(n, f.table.all[n].now == nil)
		}
	}
}

// leftOut calls report for each object of the kind that is left out, up to 100. If there are more, it calls report once
// with the number of further objects. The caller has locked Source.mu.
func (f *follower) leftOut(report func(id object.ID, code problem.Code, message string)) {
	const shown = 100
	names := make([]name, 0, len(f.left))
	for n := range f.left {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b name) int { return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name)) })
	for _, n := range names[:min(len(names), shown)] {
		report(f.id(n), problem.NotAllowed, "its newest version is not read: "+f.left[n]+"; the state read before stays in effect")
	}
	if more := len(names) - min(len(names), shown) + f.leftMore; more > 0 {
		report(f.kind.of(), problem.NotAllowed,
			fmt.Sprintf("%d more are not read, since they are too large, or too many; their versions read before stay in effect", more))
	}
}

// weight returns the approximate size of an object as text, in bytes. It returns 0 for an object of an unknown type.
func weight(o runtime.Object) int {
	switch o := o.(type) {
	case interface{ Size() int }: // of Kubernetes' own kinds
		return o.Size()
	case *unstructured.Unstructured:
		return weightOf(o.Object)
	}
	return 0
}

// weightOf returns the approximate size of a decoded JSON value as text, in bytes.
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
