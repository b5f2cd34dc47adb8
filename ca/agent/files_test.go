package agent

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/loopback"
)

// pair is a certificate chain and its key as PEM, and its issuer's.
type pair struct{ chain, key, authority []byte }

func newPair(t testing.TB, n uint64) pair {
	t.Helper()
	ca := &fakeCA{signer: authority(t, n)}
	a := &Agent{cfg: Config{sign: ca.sign}}
	id, key, roots, err := a.certify(t.Context(), byToken)
	if err != nil {
		t.Fatal(err)
	}
	return pair{id.Chain, key, encode(roots[0])}
}

// mounted is a folder as Kubernetes mounts a Secret: files are links through ..data, which is swapped.
type mounted struct {
	t   testing.TB
	dir string
	n   int
}

func (m *mounted) path(name string) string { return filepath.Join(m.dir, name) }

func (m *mounted) swap(content map[string][]byte) {
	m.t.Helper()
	m.n++
	fresh := fmt.Sprintf("..v%d", m.n)
	must := func(err error) {
		m.t.Helper()
		if err != nil {
			m.t.Fatal(err)
		}
	}
	must(os.Mkdir(m.path(fresh), 0o700))
	for name, text := range content {
		must(os.WriteFile(filepath.Join(m.dir, fresh, name), text, 0o600))
		if _, err := os.Lstat(m.path(name)); err != nil {
			must(os.Symlink(filepath.Join("..data", name), m.path(name)))
		}
	}
	must(os.Symlink(fresh, m.path("..next")))
	must(os.Rename(m.path("..next"), m.path("..data")))
}

// newFiles returns a hub of file secrets without a server, and its log.
func newFiles(t testing.TB) (*hub, *envoytest.Output) {
	out := &envoytest.Output{}
	return newHub(slog.New(slog.NewTextHandler(out, nil)), func([]string) {}), out
}

// served returns the secret that streams receive; nil: none.
func (h *hub) served(t *testing.T, name string) *tlsv3.Secret {
	t.Helper()
	all, _ := h.get()
	if all[name] == nil {
		return nil
	}
	return unpack(t, &discoveryv3.Resource{Resource: all[name].body})
}

// TestFilesRotate: a mounted Secret that comes late, is swapped, breaks and comes back.
func TestFilesRotate(t *testing.T) {
	h, out := newFiles(t)
	m := &mounted{t: t, dir: t.TempDir()}
	one, two := newPair(t, 1), newPair(t, 2)
	name := "file-cert:" + m.path("tls.crt") + "~" + m.path("tls.key")
	if !h.files.want(name) || h.served(t, name) != nil {
		t.Fatal("a secret without files is served")
	}
	if got := h.files.faults(); len(got) != 1 || got[0].Name != name || got[0].Served || !strings.Contains(got[0].Error, m.path("tls.crt")) {
		t.Errorf("faults without files: %+v", got)
	}
	for _, step := range []struct {
		what        string
		crt, key    []byte
		want        pair
		faults, log int // lines of the log
	}{
		{"they appear", one.chain, one.key, one, 0, 2},
		{"they are swapped", two.chain, two.key, two, 0, 2},
		{"another's key", one.chain, two.key, two, 1, 3},
		{"the same is wrong", one.chain, two.key, two, 1, 3},
		{"half a file", one.chain[:40], one.key, two, 1, 4},
		{"back", one.chain, one.key, one, 0, 5},
	} {
		m.swap(map[string][]byte{"tls.crt": step.crt, "tls.key": step.key})
		h.files.readChanged()
		got := h.served(t, name).GetTlsCertificate()
		if !bytes.Equal(got.GetCertificateChain().GetInlineBytes(), step.want.chain) || !bytes.Equal(got.GetPrivateKey().GetInlineBytes(), step.want.key) {
			t.Errorf("%s: another pair is served", step.what)
		}
		if n := len(h.files.faults()); n != step.faults {
			t.Errorf("%s: %d faults, want %d", step.what, n, step.faults)
		}
		if n := strings.Count(out.String(), "\n"); n != step.log {
			t.Errorf("%s: %d lines of the log, want %d:\n%s", step.what, n, step.log, out)
		}
	}
	for _, p := range []pair{one, two} {
		if block, _ := pem.Decode(p.key); strings.Contains(out.String(), string(p.key[40:60])) || strings.Contains(out.String(), fmt.Sprintf("%x", block.Bytes[10:20])) {
			t.Error("the log has a key")
		}
	}
	_, changed := h.get()
	h.files.readChanged()
	select {
	case <-changed:
		t.Error("the same files are a new secret")
	default:
	}
	h.files.release(name)
	if h.served(t, name) != nil || len(h.files.faults()) != 0 {
		t.Error("a secret that no stream wants is kept")
	}
}

// TestFilesInPlace: a file that is written over with as many bytes, at once, is seen too.
func TestFilesInPlace(t *testing.T) {
	h, _ := newFiles(t)
	path := filepath.Join(t.TempDir(), "ca.pem")
	one, two := newPair(t, 1), newPair(t, 2)
	two.authority = append(bytes.TrimRight(two.authority, "\n"), bytes.Repeat([]byte("\n"), max(1, len(one.authority)-len(two.authority)+1))...)
	write := func(text []byte, at time.Time) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil { // as a coarse clock would
			t.Fatal(err)
		}
	}
	now := time.Now()
	write(one.authority, now)
	h.files.want("file-root:" + path)
	write(two.authority, now)
	h.files.readChanged()
	if got := h.served(t, "file-root:"+path).GetValidationContext(); !bytes.Equal(got.GetTrustedCa().GetInlineBytes(), two.authority) {
		t.Error("the authorities before are served")
	}
}

// TestFilesThatAreNone: names and files that make no secret are faults by name, at once.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestFilesThatAreNone(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	good := newPair(t, 1)
	for name, text := range map[string][]byte{"crt": good.chain, "key": good.key, "ca": good.authority, "text": []byte("hello"), "empty": nil} {
		if err := os.WriteFile(at(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(at("huge"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(at("huge"), 1<<30); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"file-root:/dev/zero":                              "is not a regular file",
		"file-root:" + dir:                                 "is not a regular file",
		"file-root:" + at("pipe"):                          "is not a regular file",
		"file-root:" + at("huge"):                          "more than 1048576 bytes",
		"file-root:" + at("text"):                          `no PEM block "CERTIFICATE"`,
		"file-root:" + at("empty"):                         `no PEM block "CERTIFICATE"`,
		"file-root:" + at("ca") + "~" + at("ca"):           `no PEM block "X509 CRL"`,
		"file-root:" + at("ca") + "~" + at("none"):         "no such file",
		"file-cert:" + at("crt") + "~" + at("ca"):          "rather than a key",
		"file-cert:" + at("crt"):                           "the name has 1 paths",
		"file-cert:" + at("crt") + "~" + at("key") + "~/x": "the name has 3 paths",
		"file-cert:~":                                      "is empty",
		"file-root:":                                       "is empty",
		"file-root:a\x00b":                                 "invalid argument",
		"file-root:/" + strings.Repeat("x", 5000):          "too long",
		"file-root:/" + strings.Repeat("x/", 20000):        "of 8202 at most",
	} {
		h, out := newFiles(t)
		h.files.want(name)
		got := h.files.faults()
		if len(got) != 1 || !strings.Contains(got[0].Error, want) || h.served(t, name) != nil {
			t.Errorf("%.80q: %.300v, want %q", name, got, want)
		}
		if h.files.readChanged(); strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%.80q is logged again", name)
		}
	}
}

// A file that is too large is examined each second, and not read.
func TestTooLargeFileIsNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "huge")
	if err := os.WriteFile(path, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 10 {
		if _, _, err := readFile(path); err == nil {
			t.Fatal("it is read")
		}
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > maxFile {
		t.Errorf("%d bytes were made for ten looks at it", n)
	}
}

// The files that may be served.
func TestFilesThatAre(t *testing.T) {
	dir := t.TempDir()
	ca, crl := filepath.Join(dir, "ca"), filepath.Join(dir, "crl")
	signer := authority(t, 1)
	lists := list(t, signer, 1)
	// One block of a bundle may be unreadable for Go.
	bundle := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("?")}), encode(signer.Certificate)...)
	for path, text := range map[string][]byte{ca: bundle, crl: lists} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h, _ := newFiles(t)
	for name, revoked := range map[string][]byte{"file-root:" + ca: nil, "file-root:" + ca + "~" + crl: lists} {
		h.files.want(name)
		got := h.served(t, name).GetValidationContext()
		if !bytes.Equal(got.GetTrustedCa().GetInlineBytes(), bundle) || !bytes.Equal(got.GetCrl().GetInlineBytes(), revoked) || got.GetOnlyVerifyLeafCertCrl() {
			t.Errorf("%s: %v", name, h.files.faults())
		}
	}
	if name, err := parseFileName("file-root:system"); err != nil || !filepath.IsAbs(name.paths[0]) {
		t.Errorf("file-root:system: %v, %v", name.paths, err)
	}
}

// TestFilesAreBounded: names beyond the bound are refused, until others are not wanted any more.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestFilesAreBounded(t *testing.T) {
	h, out := newFiles(t)
	name := func(i int) string { return fmt.Sprintf("file-root:/none/%d", i) }
	for i := range 256 {
		if !h.files.want(name(i)) {
			t.Fatalf("name %d is refused", i)
		}
	}
	before := strings.Count(out.String(), "\n")
	if h.files.want(name(maxNames)) || h.files.want(name(maxNames+1)) || !h.files.want(name(0)) {
		t.Error("a name beyond the bound is taken, or one that is there is refused")
	}
	if n := strings.Count(out.String(), "\n"); n != before+1 {
		t.Errorf("%d lines of names beyond the bound", n-before)
	}
	h.files.release(name(0))
	if h.files.want(name(maxNames)) {
		t.Error("a name that another stream wants was let go")
	}
	h.files.release(name(0))
	if !h.files.want(name(maxNames)) {
		t.Error("no room came back")
	}
}

// A stream of Envoy in state-of-the-world form, one for each name: it receives a response once there is one, another
// after a rotation, and a closed stream leaves no state.
func TestFilesOverSDS(t *testing.T) {
	w := newSDS(t, func(c *Config) { c.RootPoll = 10 * time.Millisecond })
	m := &mounted{t: t, dir: t.TempDir()}
	name := "file-cert:" + m.path("tls.crt") + "~" + m.path("tls.key")
	stream, err := w.client.StreamSecrets(within(t))
	if err != nil {
		t.Fatal(err)
	}
	request := &discoveryv3.DiscoveryRequest{ResourceNames: []string{name}}
	for n := range uint64(2) {
		if err := stream.Send(request); err != nil {
			t.Fatal(err)
		}
		p := newPair(t, n+1)
		m.swap(map[string][]byte{"tls.crt": p.chain, "tls.key": p.key})
		got, err := stream.Recv()
		if err != nil || len(got.Resources) != 1 {
			t.Fatalf("%d resources, %v", len(got.GetResources()), err)
		}
		if s := unpack(t, &discoveryv3.Resource{Resource: got.Resources[0]}); s.Name != name || !bytes.Equal(s.GetTlsCertificate().GetPrivateKey().GetInlineBytes(), p.key) {
			t.Errorf("answer %d is another secret", n)
		}
		request.ResponseNonce, request.VersionInfo = got.Nonce, got.VersionInfo
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err == nil {
		t.Fatal("an answer after the end")
	}
	w.agent.hub.files.mu.Lock()
	defer w.agent.hub.files.mu.Unlock()
	if n := len(w.agent.hub.files.wanted); n != 0 {
		t.Errorf("%d secrets are wanted by nobody", n)
	}
}

// An Envoy with a listener whose file is missing serves its other listeners. Once the file exists it is presented, and
// after an exchange the next one.
func TestEnvoyTakesFiles(t *testing.T) {
	m := &mounted{t: t, dir: t.TempDir()}
	socket := filepath.Join(t.TempDir(), "sds")
	startFake(t, &fakeCA{signer: authority(t, 1)}, func(c *Config) { c.Socket, c.RootPoll = socket, 50*time.Millisecond })
	name := "file-cert:" + m.path("tls.crt") + "~" + m.path("tls.key")
	// As the control plane draws it (push/build/identity.OfAgent), but for the time that Envoy waits: 15 s.
	ofAgent := strings.NewReplacer(`"DELTA_GRPC"`, `"GRPC"`, `"resource_api_version"`, `"initial_fetch_timeout":"0.2s","resource_api_version"`).Replace(sds)
	context := `"transport_socket":{"name":"tls","typed_config":{"@type":"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
		"common_tls_context":{"tls_certificate_sds_secret_configs":[{"name":"` + name + `","sds_config":` + ofAgent + `}]}}},`
	plain, secured := loopback.PortFor(t), loopback.PortFor(t)
	ok := `"direct_response":{"status":200}`
	other := strings.Replace(listener, `"name":"in"`, `"name":"secured"`, 1)
	startEnvoy(t, "files", fmt.Sprintf(listener, plain, "", ok)+","+fmt.Sprintf(other, secured, context, ok), fmt.Sprintf(sdsCluster, socket))
	until := (&mesh{t: t}).until
	until("the other listener answers", func() bool {
		resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", plain))
		if err != nil {
			return false
		}
		return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	})
	presented := func() []byte {
		conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", secured), &tls.Config{InsecureSkipVerify: true}) // compared by the caller
		if err != nil {
			return nil
		}
		defer conn.Close()
		return encode(conn.ConnectionState().PeerCertificates[0])
	}
	if presented() != nil {
		t.Error("a certificate is presented without a file")
	}
	for n := range uint64(2) {
		p := newPair(t, n+1)
		m.swap(map[string][]byte{"tls.crt": p.chain, "tls.key": p.key})
		until("the certificate is presented", func() bool {
			return len(presented()) > 0 && bytes.HasPrefix(p.chain, presented())
		})
	}
}
