package keyring_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
)

// allowed is a replica with a state directory and an allowance.
func allowed(dir string, count int) func(*keyring.Config) {
	return func(c *keyring.Config) { c.Dir, c.Allowance = dir, count }
}

// away shortens the timeout of etcd, for a replica that starts while etcd is away. With etcd, on a busy machine,
// responses may need longer.
func away(c *keyring.Config) { c.Answer = 500 * time.Millisecond }

// renews signs a renewal of a certificate that ends in an hour, and has it recorded by the replica alone.
func (r *replica) renews(name, shown string) (*issue.Issued, error) {
	r.t.Helper()
	s := r.State()
	if s.Active == nil {
		r.t.Fatalf("%v", s)
	}
	id := spiffeid.RequireFromPath(td, "/ns/default/sa/"+name)
	out, err := issue.Issue(s.Active, issue.Request{CSR: csr, Identity: id, TTL: r.Longest()}, issue.Policy{Jitter: -1}, r.w.now(), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return out, r.Spend(keyring.Issue{Serial: out.Serial, Identity: id.String(), Epoch: out.Epoch, Generation: s.Generation, NotAfter: out.Leaf.NotAfter, Previous: shown},
		r.w.now().Add(time.Hour))
}

// journalled are the serial numbers in etcd's journal.
func (w *harness) journalled() string {
	w.t.Helper()
	var all strings.Builder
	for _, b := range w.blobs("certificates/") {
		all.Write(b.Raw)
	}
	return all.String()
}

// While etcd is away certificates are renewed for an hour, up to the allowance, after any restarts; then no more. When
// etcd is back it receives all of them, and the allowance is complete again.
// Promise: security-workloads.md#renewals-while-etcd-is-away
func TestRenewalsWithoutEtcd(t *testing.T) {
	w := newHarness(t)
	dir := t.TempDir()
	r := w.replica(allowed(dir, 20))
	if _, err := r.Revoke(t.Context(), nil, []string{"spiffe://cluster.local/ns/default/sa/bad"}); err != nil {
		t.Fatal(err)
	}
	r.settle()
	if n := r.Stats().Allowance; n != 20 {
		t.Fatalf("an allowance of %d", n)
	}
	r.stop()
	w.client = w.Connect()
	w.Server.Stop()
	var got []string
	for round := range 3 { // with restarts between
		r = w.replica(allowed(dir, 20), away)
		r.becomes("the keyring on disk", func(s *keyring.State) bool { return s.Active != nil })
		if !r.Away() {
			t.Error("etcd counts as there")
		}
		for i := range 4 {
			leaf, err := r.renews(fmt.Sprint("web", i), fmt.Sprintf("a%d%d", round, i))
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, leaf.Serial)
		}
		if _, err := r.renews("web", ""); !errors.Is(err, keyring.ErrAllowance) {
			t.Errorf("a first certificate: %v", err)
		}
		if _, err := r.renews("bad", "abc"); !errors.Is(err, keyring.ErrRevoked) {
			t.Errorf("a denied identity: %v", err)
		}
		if _, err := r.renews("web", strings.Repeat("a", 2000)); err == nil || strings.Contains(err.Error(), "%!") {
			t.Errorf("too large a renewal: %v", err)
		}
		if n := r.Stats().Allowance; n != 16-4*round {
			t.Errorf("%d renewals are left", n)
		}
		if round == 0 { // a line that a crash left half written was not handed out
			r.stop()
			file, err := os.OpenFile(filepath.Join(dir, "allowance.log"), os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = file.WriteString(`{"s":"abc`)
			}
			if err = errors.Join(err, file.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.later(65 * time.Minute)
	if _, err := r.renews("web0", "a"); err != nil {
		t.Errorf("after 65 minutes: %v", err)
	}
	w.later(15 * time.Minute)
	if _, err := r.renews("web0", "b"); !errors.Is(err, keyring.ErrAllowance) {
		t.Errorf("after 80 minutes: %v", err)
	}
	w.Server.Restart(w.Server.Dir())
	for end := time.Now().Add(time.Minute); r.settle() != nil && r.Stats().Allowance != 20; { // the connection may need more than one look
		if time.Now().After(end) {
			t.Fatalf("an allowance of %d\n%s", r.Stats().Allowance, w.logs.String())
		}
	}
	for _, serial := range got {
		if !strings.Contains(w.journalled(), `"`+serial+`"`) {
			t.Errorf("etcd does not have %s", serial)
		}
	}
	if r.Away() {
		t.Error("etcd counts as away")
	}
	r.mustLeaf("web")
}

// Certificates that a disconnected replica may have issued count as issued: a rotation waits for them, a denial lasts
// until they have ended, and their identity is not restored earlier. When the replica is connected again, certificates
// that it issued for a revoked certificate are revoked too.
// Promise: security-workloads.md#renewals-while-etcd-is-away
func TestAllowancesCountAsIssued(t *testing.T) {
	w := newHarness(t)
	dir := t.TempDir()
	r, other := w.replica(allowed(t.TempDir(), 20)), w.replica(allowed(dir, 20))
	r.settle()
	other.settle()
	web := r.mustLeaf("web")
	other.stop()
	nowhere, err := kv.Open(kv.Config{Mesh: kvtest.Mesh, Endpoints: []string{"unix://" + filepath.Join(t.TempDir(), "none")}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nowhere.Close() })
	cut := w.replica(allowed(dir, 20), away, func(c *keyring.Config) { c.Store = nowhere })
	cut.becomes("the keyring on disk", func(s *keyring.State) bool { return s.Active != nil })

	const bad = "spiffe://cluster.local/ns/default/sa/bad"
	out, err := r.Revoke(t.Context(), []string{web.Serial}, []string{bad})
	if err != nil {
		t.Fatal(err)
	}
	renewed, err1 := cut.renews("web", web.Serial)
	again, err2 := cut.renews("web", renewed.Serial)
	late, err3 := cut.renews("bad", "abc")
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err) // it does not know of the revocations
	}
	if out.Denied[0].Until.Before(late.Leaf.NotAfter) {
		t.Errorf("the denial ends at %v, a certificate at %v", out.Denied[0].Until, late.Leaf.NotAfter)
	}
	r.settle() // this replica knows it; the other one is not heard of
	if err := r.Restore(t.Context(), []string{bad}); err == nil || !strings.Contains(err.Error(), "not been heard of") {
		t.Errorf("the identity came back: %v", err)
	}
	if err := r.Rotate(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	r.settle()
	if report := r.settle(); !slices.ContainsFunc(report.Waiting, func(h keyring.Holder) bool { return h.Many }) {
		t.Errorf("the rotation does not wait for it: %+v", report.Waiting)
	}
	cut.stop()
	back := w.replica(allowed(dir, 20))
	back.settle()
	r.settle()
	if got := serials(list(t, r, 1)); !got[web.Serial] || !got[renewed.Serial] || !got[again.Serial] || got[late.Serial] {
		t.Errorf("the list has %v", got)
	}
	back.settle()
	if err := r.Restore(t.Context(), []string{bad}); err != nil {
		t.Fatal(err)
	}
	if got := serials(list(t, r, 1)); !got[late.Serial] {
		t.Errorf("the list has %v", got)
	}
	if report := r.settle(); slices.ContainsFunc(report.Waiting, func(h keyring.Holder) bool { return h.Many }) {
		t.Errorf("the rotation still waits for it: %+v", report.Waiting)
	}
}

// Allowances of replicas that never return are deleted once all certificates that they may have issued have ended.
func TestEndedAllowancesArePruned(t *testing.T) {
	w := newHarness(t)
	r, gone := w.replica(), w.replica(allowed(t.TempDir(), 20))
	gone.settle()
	gone.stop()
	r.settle()
	if n := len(w.blobs("allowances/")); n != 1 {
		t.Fatalf("%d allowances", n)
	}
	w.later(5 * time.Hour)
	r.settle()
	if n := len(w.blobs("allowances/")); n != 1 {
		t.Errorf("%d allowances before their certificates have ended", n)
	}
	w.later(time.Hour)
	r.settle()
	if n := len(w.blobs("allowances/")); n != 0 {
		t.Errorf("%d allowances left", n)
	}
}
