//go:build !race

package proxy

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"navarch.io/navarch/loadtest/gauge"
)

// serveElsewhere is the variable that makes TestWhatAProxyTakes its own server.
const serveElsewhere = "NAVARCH_TEST_SERVE_ELSEWHERE"

// place is the other process's address, its root, and a certificate for all proxies.
type place struct {
	Addr            string
	Root, Cert, Key []byte
}

// serving runs the server in a separate process, so that a test measures the proxies without their server. It ends with
// its input.
func serving(t *testing.T) {
	a := newAuthority(t)
	s := serve(t, &tls.Config{Certificates: []tls.Certificate{*a.leaf("", "istiod.test")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.pool})
	s.many(700, "a-version-of-16-B")
	leaf := a.leaf("spiffe://td/ns/ns/sa/p")
	key, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(place{s.addr, a.cert.Raw, leaf.Certificate[0], key}); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// elsewhere starts that server, and returns the configuration of its proxies.
func elsewhere(t *testing.T) Config {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestWhatAProxyTakes$")
	cmd.Env = append(os.Environ(), serveElsewhere+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _, _ = io.Copy(io.Discard, out); _ = cmd.Wait() })
	var c place
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &c)
	}
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	root, err := x509.ParseCertificate(c.Root)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.ParsePKCS8PrivateKey(c.Key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(root)
	shared := &tls.Config{RootCAs: pool, ServerName: "istiod.test", NextProtos: []string{"h2"}, CurvePreferences: []tls.CurveID{tls.X25519},
		Certificates: []tls.Certificate{{Certificate: [][]byte{c.Cert}, PrivateKey: key}}}
	return Config{Addrs: []string{c.Addr}, WarmTimeout: patience, BackOff: 10 * time.Millisecond,
		TLS: func(Identity) (*tls.Config, error) { return shared, nil }}
}

// taken is the memory of this process: heap and stacks in use, and the kernel's figures.
type taken struct {
	heap, stack, rss, bytes, objects uint64
	cpu                              time.Duration
	writes                           uint64 // calls; 0 where the kernel does not tell
}

// settledMemory returns the memory without garbage: pools are empty after two collections.
func settledMemory(t *testing.T) taken {
	t.Helper()
	runtime.GC()
	debug.FreeOSMemory()
	return takenNow(t)
}

func takenNow(t *testing.T) taken {
	t.Helper()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	p, err := gauge.ReadProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	var writes uint64
	if own, err := os.ReadFile("/proc/self/io"); err == nil {
		_, rest, _ := strings.Cut(string(own), "syscw:")
		_, _ = fmt.Sscan(rest, &writes) // 0: it does not tell
	}
	return taken{heap: m.HeapAlloc, stack: m.StackInuse, rss: p.RSS, bytes: m.TotalAlloc, objects: m.Mallocs,
		cpu: time.Duration(u.Utime.Nano() + u.Stime.Nano()), writes: writes}
}

// TestWhatAProxyTakes measures memory: how much one further idle proxy keeps over mTLS with a mesh of 1,400 resources,
// and how much is allocated for one further connection of it, with all its claims.
func TestWhatAProxyTakes(t *testing.T) {
	if os.Getenv(serveElsewhere) != "" {
		serving(t)
		return
	}
	const n = 80
	f, err := New(elsewhere(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	all := identities(n + 10)
	f.Add(all[:10]...)
	join(t, f, 10)
	idle(t, f)
	before := settledMemory(t)
	f.Add(all[10:]...)
	join(t, f, n+10)
	idle(t, f)
	after := settledMemory(t)
	kept := (after.heap + after.stack - min(before.heap+before.stack, after.heap+after.stack)) / n
	t.Logf("a proxy keeps %d bytes: %d of heap, %d of stacks; resident %d", kept, int64(after.heap-before.heap)/n,
		int64(after.stack-before.stack)/n, int64(after.rss-before.rss)/n)
	if most := uint64(40 << 10); kept > most {
		t.Errorf("a proxy that is idle keeps %d bytes, want %d or fewer", kept, most)
	}
	before = takenNow(t)
	f.Reconnect(All, Reconnect{Now: true})
	eventually(t, "all have resumed", func() bool { // Stats copies histograms
		return f.count.streams.Load() == 2*(n+10) && f.count.joined.Load() == n+10
	})
	after = takenNow(t)
	bytes, objects := (after.bytes-before.bytes)/(n+10), (after.objects-before.objects)/(n+10)
	t.Logf("a reconnect allocates %d bytes, %d objects; %v of CPU; %d calls to write", bytes, objects, (after.cpu-before.cpu)/(n+10),
		(after.writes-before.writes)/(n+10))
	if objects > 1300 { // most are the handshake's; bytes are not compared, since pools forget under the race detector
		t.Errorf("a reconnect allocates %d objects, want 1,300 or fewer", objects)
	}
	if writes := (after.writes - before.writes) / (n + 10); writes > 18 {
		t.Errorf("a reconnect takes %d calls to write, want 18 or fewer", writes)
	}
	clean(t, f)
}
