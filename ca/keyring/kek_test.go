package keyring_test

import "testing"

// The key encryption key alone does not yield the mesh's keys, which are random: with it and another etcd, other keys
// are created, which are not trusted.
// Promise: security-keys.md#the-power-of-each-key
func TestKEKAloneOpensNothing(t *testing.T) {
	w, thief := newHarness(t), newHarness(t)
	thief.kek = w.kek
	r := w.replica()
	r.settle()
	stolen := thief.replica()
	stolen.settle()
	roots, others := r.State().Bundle, stolen.State().Bundle
	if len(roots) != 1 || len(others) != 1 || roots[0].Equal(others[0]) || string(roots[0].RawSubjectPublicKeyInfo) == string(others[0].RawSubjectPublicKeyInfo) {
		t.Fatal("the same key encryption key makes the same root")
	}
	if err := trusts(roots, r.mustLeaf("web"), w.now()); err != nil {
		t.Errorf("what the mesh signs: %v", err)
	}
	if err := trusts(roots, stolen.mustLeaf("web"), w.now()); err == nil {
		t.Error("what is signed with the key encryption key alone is trusted")
	}
}
