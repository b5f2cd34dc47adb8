package kube

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Lists arrive in any order: nothing is emitted before the selected namespaces are known, and objects of other
// namespaces are never emitted. Namespaces that are added later with their objects are read.
func TestSelectionIsKnownFirst(t *testing.T) {
	d := newDesk(t)
	d.s.selection.ready = false
	k := d.s.meshConfiguration("istio")
	d.s.kinds[k.id()] = d.s.newFollower(k)
	d.put("Service", append(named("in", 0, 2, aService), named("out", 0, 6, aService)...)...)
	d.put("Service", named("unknown", 0, 1, aService)...)
	mesh := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "istio-system", Name: "istio"}, Data: map[string]string{"mesh": "discoverySelectors: [{matchLabels: {mesh: in}}]"}}
	if err := (store{d.s.kinds[k.id()], k}).Replace([]any{mesh}, ""); err != nil {
		t.Fatal(err)
	}
	in := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "in", Labels: map[string]string{"mesh": "in"}}}
	d.list("Namespace", in, aNamespace("out", false))
	if got := d.emitted(); len(got) > 0 {
		t.Errorf("emitted before it is known what is selected: %q", got)
	}
	d.s.mu.Lock()
	d.s.selectReady()
	d.s.mu.Unlock()
	want := []string{"put ConfigMap istio-system/istio", "put Namespace in", "put Namespace out", "put Service in/o0", "put Service in/o1", "synced"}
	if got := d.emitted(); !slices.Equal(got, want) {
		t.Errorf("emitted %q, want %q", got, want)
	}
}

// Namespaces returns the selected namespaces that are not being deleted, and the channel reports each change.
func TestNamespaces(t *testing.T) {
	d := newDesk(t)
	d.s.selection.ready = false
	if names, known, _ := d.s.Namespaces(); known {
		t.Fatalf("before the lists are complete there is %q", names)
	}
	in := func(name, label string, deleted bool) *corev1.Namespace {
		n := aNamespace(name, deleted).(*corev1.Namespace)
		n.Labels = map[string]string{"mesh": label}
		return n
	}
	check := func(what string, change func(), want ...string) {
		t.Helper()
		_, _, changed := d.s.Namespaces()
		change()
		select {
		case <-changed:
		default:
			t.Errorf("%s: nobody hears of it", what)
		}
		if names, known, _ := d.s.Namespaces(); !known || !slices.Equal(names, want) {
			t.Errorf("%s: %q (known: %v), want %q", what, names, known, want)
		}
	}
	locked := func(do func()) func() {
		return func() {
			d.s.mu.Lock()
			defer d.s.mu.Unlock()
			do()
		}
	}
	d.list("Namespace", in("a", "in", false), in("b", "out", false))
	check("listed", locked(d.s.selectReady), "a", "b")
	check("selected", locked(func() { d.s.selectBy("discoverySelectors: [{matchLabels: {mesh: in}}]") }), "a")
	check("another one", func() { d.list("Namespace", in("a", "in", false), in("b", "out", false), in("c", "in", false)) }, "a", "c")
	check("labels", func() { d.list("Namespace", in("a", "in", false), in("b", "in", false), in("c", "in", false)) }, "a", "b", "c")
	check("being deleted", func() { d.list("Namespace", in("a", "in", false), in("b", "in", true), in("c", "in", false)) }, "a", "c")
	check("gone", func() { d.list("Namespace", in("a", "in", false)) }, "a")
	_, _, changed := d.s.Namespaces()
	d.s.end()
	select {
	case <-changed:
	default:
		t.Error("the term is over, and nobody hears of it")
	}
}
