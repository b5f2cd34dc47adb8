package kube

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Lists come in any order: nothing is told before it is known which namespaces are selected, and what is not is never told. Namespaces that come
// later with their objects are read.
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
	if told := d.tell(); len(told) > 0 {
		t.Errorf("told before it is known what is selected: %q", told)
	}
	d.s.mu.Lock()
	d.s.selectReady()
	d.s.mu.Unlock()
	want := []string{"put ConfigMap istio-system/istio", "put Namespace in", "put Namespace out", "put Service in/o0", "put Service in/o1"}
	if told := d.tell(); !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	if held := d.s.Held(); len(held) > 0 {
		t.Errorf("held %v", held)
	}
}
