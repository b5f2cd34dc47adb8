package kube

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	kuberuntime "k8s.io/apimachinery/pkg/runtime"
)

// streamed applies a complete list of a kind whose objects arrived one by one.
func (d *desk) streamed(kind string, objects ...kuberuntime.Object) {
	d.t.Helper()
	var all []any
	for _, o := range objects {
		d.store(kind).kind.strip(o)
		l, err := d.store(kind).Transformer()(o)
		if err != nil {
			d.t.Fatal(err)
		}
		all = append(all, l)
	}
	if err := d.store(kind).Replace(all, ""); err != nil {
		d.t.Fatal(err)
	}
}

// A list whose objects are converted as they arrive is emitted like any other: changed, new and deleted objects, and no
// unchanged ones. One that is too large is left out; objects of another revision, or of a namespace that is not
// selected, are missing.
func TestStreamedLists(t *testing.T) {
	d := newDesk(t)
	d.s.Limits.Object = 1000
	d.list("Service", service("a", "1"), service("b", "1"), service("c", "1"))
	d.emits("put Service shop/a", "put Service shop/b", "put Service shop/c")
	before := d.store("Service").f.table.all[name{"shop", "a"}].now
	d.streamed("Service", service("a", "1"), service("b", "2"), service("d", "1"), service("e", strings.Repeat("x", 2000)))
	d.emits("3", "put Service shop/b", "put Service shop/d", "delete Service shop/c")
	if d.store("Service").f.table.all[name{"shop", "a"}].now != before {
		t.Error("an object that is as it was is another one")
	}
	d.put("Service", service("b", "2"))
	d.emits()
	elsewhere := service("a", "1")
	elsewhere.Namespace = "other"
	d.s.selection.only = "other"
	d.streamed("Service", service("a", "1"), service("b", "2"), service("d", "1"), elsewhere)
	if got := d.emitted(); !slices.Contains(got, "put Service other/a") || d.store("Service").f.table.now != 1 {
		t.Errorf("emitted %v, %d are there", got, d.store("Service").f.table.now)
	}
	for _, kind := range []string{"Namespace"} {
		if d.store(kind).Transformer() != nil {
			t.Errorf("a %s is not looked at as a whole", kind)
		}
	}
}

// While a list is read, the retained form of a Pod is a fraction of its decoded form.
func TestBytesOfAList(t *testing.T) {
	const pods, most = 2000, 700
	d := newDesk(t)
	transform := d.store("Pod").Transformer()
	all, before := make([]any, pods), heap()
	for i := range all {
		p := realisticPod(fmt.Sprint("web-5d4f8c7b9-", i), "10.244.0.1")
		d.store("Pod").kind.strip(p)
		var err error
		if all[i], err = transform(p); err != nil {
			t.Fatal(err)
		}
	}
	if each := (heap() - before) / pods; each > most {
		t.Errorf("%d bytes for each Pod, want at most %d", each, most)
	}
	runtime.KeepAlive(all)
}
