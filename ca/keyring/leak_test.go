//go:build !race

package keyring_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"navarch.io/navarch/ca/agent"
	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/ca/seal"
)

// leak is a running CA and agent, and all their private keys so far.
type leak struct {
	*harness
	needles needles
	dir     string
	places  map[string][]byte
}

// This test runs the keyring, the CA's server and an agent through rotations of the root and of the key encryption key,
// an abort, revocations and restarts. Then it searches for every private key: in the present and past contents of etcd,
// in every file on disk (including etcd's log and snapshots), in the logs at debug level, in printed output, and in
// messages to peers and agents.
// Promise: security-keys.md#the-power-of-each-key, security-keys.md#who-reads-or-writes-etcd
func TestNoKeyAnywhere(t *testing.T) {
	l := &leak{harness: newHarness(t), needles: needles{}, dir: t.TempDir(), places: map[string][]byte{}}
	kek := l.kek
	r := l.replica(l.wrappedBy(kek))
	r.settle()
	tokens, byToken := l.issuer()
	a := l.agent(tokens, r.listen(byToken), r)
	for step, do := range []func() error{
		func() error {
			if err := r.Rotate(t.Context(), false); err != nil {
				return err
			}
			l.remember(r) // the agent does not have its root: it waits
			return r.Abort(t.Context())
		},
		func() error { return r.Rotate(t.Context(), false) },
		func() error { return r.Rotate(t.Context(), false) },
	} {
		if err := do(); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		l.remember(r)
		l.renew(a) // with the new root
		r.settle() // which signs then
		l.remember(r)
	}
	if _, err := r.Revoke(t.Context(), []string{a.Identity().Serial}, []string{"spiffe://cluster.local/ns/default/sa/thief"}); err != nil {
		t.Fatal(err)
	}
	if err := r.Rotate(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	l.remember(r)
	was := r.settle().KEKs
	r.stop()
	if _, err := seal.NewFile(kek + "2"); err != nil {
		t.Fatal(err)
	}
	r = l.replica(l.wrappedBy(kek+"2", kek))
	r.until("encrypted again", func(n *keyring.Report) bool { return len(n.KEKs) == 1 && n.KEKs[0] != was[0] })
	if err := r.Rotate(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	l.remember(r)
	seen, err := r.Seen(t.Context(), make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	l.places["answer to a peer"] = seen
	l.printed(r)
	l.etcd()
	l.files()
	l.places["logs"] = []byte(l.logs.String())
	l.judge(kek)
}

// wrappedBy configures a replica whose keys are wrapped by the key in a file, and whose memory is in the searched
// folder.
func (l *leak) wrappedBy(file string, older ...string) func(*keyring.Config) {
	return func(c *keyring.Config) {
		provider, err := seal.NewFile(file, older...)
		if err != nil {
			l.t.Fatal(err)
		}
		c.Sealer, _ = seal.New(provider)
		c.Dir = l.dir
	}
}

// issuer returns an issuer of tokens and its verifier.
func (l *leak) issuer() (*attest.Issuer, *attest.Tokens) {
	tokens, err := attest.Local(l.dir)
	if err != nil {
		l.t.Fatal(err)
	}
	verifier, err := tokens.Verifier()
	if err != nil {
		l.t.Fatal(err)
	}
	byToken, err := attest.NewTokens(attest.TokensConfig{TrustDomain: td, Issuers: []attest.TokenIssuer{verifier}})
	if err != nil {
		l.t.Fatal(err)
	}
	return tokens, byToken
}

// agent runs one with a token until the test ends.
func (l *leak) agent(tokens *attest.Issuer, address string, r *replica) *agent.Agent {
	t := l.t.(*testing.T)
	token, _, err := tokens.Mint("default", "web", "istio-ca", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	sockets, err := os.MkdirTemp("", "sds")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sockets) })
	a, err := agent.New(agent.Config{Address: address, ServerName: "localhost", Roots: issue.EncodeCertificates(r.State().Bundle...), TokenFile: file,
		Socket: filepath.Join(sockets, "s"), Log: slog.New(slog.NewTextHandler(&l.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	select {
	case <-a.Ready():
	case <-time.After(time.Minute):
		_, why := a.LastFailure()
		t.Fatalf("the agent got no certificate: %v", why)
	}
	l.needles.key(t, "agent, first", a.TLS("localhost").Certificates[0].PrivateKey)
	return a
}

// renew has the agent get another certificate, over its own, and remembers its key.
func (l *leak) renew(a *agent.Agent) {
	t := l.t.(*testing.T)
	t.Helper()
	before := a.Identity().Serial
	a.Renew()
	for end := time.Now().Add(time.Minute); a.Identity().Serial == before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			_, why := a.LastFailure()
			t.Fatalf("the agent did not renew: %v", why)
		}
	}
	l.needles.key(t, "agent "+a.Identity().Serial, a.TLS("localhost").Certificates[0].PrivateKey)
}

// remember adds the signing keys of now, and those of the server's own certificates.
func (l *leak) remember(r *replica) {
	t := l.t.(*testing.T)
	keys, err := r.PrivateKeys(t.Context())
	if err != nil || len(keys) == 0 {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	for number, key := range keys {
		l.needles.key(t, fmt.Sprintf("epoch %d", number), key)
	}
	l.serving.Range(func(serial, key any) bool {
		l.needles.key(t, "serving "+serial.(string), key)
		return true
	})
}

// printed is everything of a keyring that may be shown, in every way.
func (l *leak) printed(r *replica) {
	s := r.State()
	for _, v := range []any{s, *s, s.Active, *s.Active, s.Active.Key, []any{s}, map[string]any{"a": s.Active.Key}, r.settle(), r.Stats()} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d", "%q"} {
			place := fmt.Sprintf("%T as %s", v, verb)
			l.places[place] = fmt.Appendf(l.places[place], verb, v)
		}
		if out, err := json.Marshal(v); err == nil {
			l.places[fmt.Sprintf("%T as JSON", v)] = out
		}
		var line bytes.Buffer
		slog.New(slog.NewJSONHandler(&line, nil)).Info("x", slog.Any("v", v))
		l.places[fmt.Sprintf("%T in a log", v)] = line.Bytes()
	}
}

// etcd is every value of every key in every revision.
func (l *leak) etcd() {
	t := l.t.(*testing.T)
	now, err := l.Client().Get(t.Context(), "any")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	values := 0
	for resp := range l.Client().Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(1), clientv3.WithProgressNotify()) {
		if err := resp.Err(); err != nil {
			t.Fatal(err)
		}
		for _, e := range resp.Events {
			l.places[fmt.Sprintf("etcd %s at %d", e.Kv.Key, e.Kv.ModRevision)] = slices.Concat(e.Kv.Key, e.Kv.Value)
			values++
		}
		if resp.Header.Revision >= now.Header.Revision && len(resp.Events) > 0 && resp.Events[len(resp.Events)-1].Kv.ModRevision >= now.Header.Revision {
			break
		}
	}
	if ctx.Err() != nil || values < 20 {
		t.Fatalf("%d values in etcd's history, %v", values, ctx.Err())
	}
}

// files is every file of etcd and of the data directory.
func (l *leak) files() {
	t := l.t.(*testing.T)
	var kinds []string
	for _, dir := range []string{l.Dir(), l.dir} {
		if err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			raw, err := os.ReadFile(path)
			name, _ := filepath.Rel(dir, path)
			l.places["file "+name] = bytes.TrimRight(raw, "\x00") // etcd reserves room in its log
			kinds = append(kinds, name)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{".wal", "snap/db", "keyring.json", "token-issuer.key"} {
		if !slices.ContainsFunc(kinds, func(name string) bool { return strings.HasSuffix(name, want) }) {
			t.Fatalf("no file %s among %v", want, kinds)
		}
	}
}

// judge searches for all keys everywhere. Two files may contain keys: that of the token issuer, and that of the key
// encryption key, which is in another folder and searched for too.
func (l *leak) judge(kek string) {
	t := l.t.(*testing.T)
	l.needles.marks()
	for _, path := range []string{kek, kek + "2"} {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		l.needles.secret("key encryption key "+filepath.Base(path), raw)
	}
	const own = "file token-issuer.key"
	if found := l.needles.in(l.places[own]); len(found) == 0 {
		t.Error("the scan does not see the one key that is there")
	}
	decoded, _ := pem.Decode(l.places[own])
	key, err := x509.ParsePKCS8PrivateKey(decoded.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	delete(l.places, own)
	l.needles.key(t, "token issuer", key)
	epochs := 0
	for name := range l.needles {
		if strings.HasPrefix(name, "epoch ") && strings.HasSuffix(name, " scalar raw") {
			epochs++
		}
	}
	if epochs != 6 {
		t.Errorf("the keys of %d epochs are looked for, want 6", epochs)
	}
	size := 0
	for place, text := range l.places {
		size += len(text)
		if found := l.needles.in(text); len(found) > 0 {
			t.Errorf("%s holds %v", place, found)
		}
	}
	t.Logf("looked for %d forms of keys in %d places, %d KiB", len(l.needles), len(l.places), size>>10)
}
