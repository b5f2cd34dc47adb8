package kube

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/store/object"
)

// A ConfigMap is read while an object refers to it, and only its values of authorities. The mesh configuration has a
// follower of its own, which a reference neither replaces nor ends.
// Promise: security-gateways.md#keys-secrets-and-configmaps
func TestReferencedConfigMap(t *testing.T) {
	d := newDesk(t)
	clients := object.ID{Kind: "ConfigMap", Namespace: "trust", Name: "clients"}
	mesh := object.ID{Kind: "ConfigMap", Namespace: d.s.SystemNamespace, Name: d.s.meshName()}
	by := object.ID{Kind: "Gateway", Namespace: "apps", Name: "g"}
	own := d.s.kinds[d.s.meshConfiguration(d.s.meshName()).id()]
	d.refer(object.Reference{To: clients, By: by}, object.Reference{To: mesh, By: by})
	f := d.s.kinds[referred(clients).id()]
	if f == nil || d.s.kinds[d.s.meshConfiguration(d.s.meshName()).id()] != own && own != nil {
		t.Fatalf("followers %v", d.s.kinds)
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "trust", Name: "clients"},
		Data: map[string]string{"ca.crt": "a", "ca.crl": "b", "password": "c", "tls.key": "d"}}
	f.kind.strip(m)
	if len(m.Data) != 2 || m.Data["ca.crt"] != "a" || m.Data["ca.crl"] != "b" {
		t.Errorf("kept: %v", m.Data)
	}
	if err := (store{f, f.kind}).Replace([]any{m}, ""); err != nil {
		t.Fatal(err)
	}
	if got := d.emitted(); !slices.Contains(got, "put ConfigMap trust/clients") {
		t.Errorf("emitted %q", got)
	}
	d.refer()
	if d.s.kinds[referred(clients).id()] != nil || own != nil && d.s.kinds[own.kind.id()] != own {
		t.Error("what nothing refers to is followed, or the mesh configuration is not")
	}
	if got := d.emitted(); !slices.Contains(got, "delete ConfigMap trust/clients") {
		t.Errorf("emitted %q", got)
	}
}
