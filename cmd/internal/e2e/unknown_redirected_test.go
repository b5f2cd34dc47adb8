package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	vishnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"navarch.io/navarch/deploy/redirect"
	"navarch.io/navarch/deploy/redirect/kernel"
	"navarch.io/navarch/deploy/testcluster/netns"
)

// ownNetwork is set where a test runs in a network namespace of its own.
const ownNetwork = "NAVARCH_TEST_OWN_NETWORK"

// inOwnNetwork runs this test again, alone, in a network namespace of its own, where Envoy's ports are free and no
// other redirection rules exist; false in that second run. Without the right to create a namespace the test is skipped.
func inOwnNetwork(t *testing.T) bool {
	t.Helper()
	if os.Getenv(ownNetwork) != "" {
		return false
	}
	var out bytes.Buffer
	cmd := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), ownNetwork+"=1")
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err := cmd.Start()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINVAL) {
		t.Skipf("real redirection needs a network namespace of its own (root): %v", err)
	}
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil || !strings.Contains(out.String(), "--- PASS: "+t.Name()) {
		t.Errorf("in its own network namespace: %v\n%s", err, out.String())
	}
	return true
}

// The Pod's address, those of a machine beside it, and the group of the Pod's application.
const (
	podAddress, sentTo, byName = "10.9.0.2", "10.9.0.1", "10.9.0.3"
	appGroup                   = 77
)

// wire makes this namespace the Pod's: what its application's group sends is redirected to Envoy. It is the namespace
// of the machine beside it, to which a wire leads.
func wire(t *testing.T) *netns.Space {
	t.Helper()
	other, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	address := func(link string, all ...string) error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return err
		}
		for _, a := range all {
			if err := netlink.AddrAdd(l, &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(a), Mask: net.CIDRMask(24, 32)}}); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(l)
	}
	var there vishnetns.NsHandle
	err = other.Do(func() (err error) { there, err = vishnetns.Get(); return err })
	if err == nil {
		defer there.Close()
		eth0 := netlink.NewLinkAttrs()
		eth0.Name = "eth0"
		err = netlink.LinkAdd(&netlink.Veth{LinkAttrs: eth0, PeerName: "eth0", PeerNamespace: netlink.NsFd(there)})
	}
	rules := redirect.Default()
	rules.Outbound, rules.OwnerGroups = redirect.Prefixes{All: true}, []uint32{appGroup}
	if err = errors.Join(err, address("lo"), address("eth0", podAddress), other.Do(func() error { return address("eth0", sentTo, byName) }),
		rules.Validate(), kernel.Apply(rules.Rules())); err != nil {
		t.Fatal(err)
	}
	return other
}

// asApp connects as the Pod's application does: the socket is its group's. It has a thread of its own, which does not
// end while the test runs: processes that a thread started end with it.
func asApp(t *testing.T) func(ctx context.Context, network, address string) (net.Conn, error) {
	t.Helper()
	calls, ready := make(chan func()), make(chan error)
	go func() {
		runtime.LockOSThread()
		_, err := unix.SetfsgidRetGid(appGroup)
		ready <- err
		for call := range calls {
			call()
		}
	}()
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, network, address string) (c net.Conn, err error) {
		done := make(chan struct{})
		calls <- func() {
			c, err = (&net.Dialer{Timeout: patience}).DialContext(ctx, network, address)
			close(done)
		}
		<-done
		return c, err
	}
}

// listenAt starts a server on the other machine.
func listenAt(t *testing.T, other *netns.Space, port uint16) (l net.Listener) {
	t.Helper()
	if err := other.Do(func() (err error) {
		l, err = net.Listen("tcp4", netip.AddrPortFrom(netip.IPv4Unspecified(), port).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// With ALLOW_ANY_DYNAMIC_DNS, redirected connections without a listener are routed by name if they are plain HTTP. All
// others (TLS, servers that speak first) go to their original destination. Connections to the port of redirection
// itself lead nowhere.
func TestUnknownHostsRedirected(t *testing.T) {
	parallel(t)
	if inOwnNetwork(t) {
		return
	}
	other, dial := wire(t), asApp(t)
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Host, " at ", r.Context().Value(http.LocalAddrContextKey))
	})
	plain, secure := httptest.NewUnstartedServer(answer), httptest.NewUnstartedServer(answer)
	plain.Listener, secure.Listener = listenAt(t, other, 8080), listenAt(t, other, 8443)
	plain.Start()
	secure.StartTLS()
	t.Cleanup(func() { plain.Close(); secure.Close() })
	banner := listenAt(t, other, 9000)
	go func() {
		for c, err := banner.Accept(); err == nil; c, err = banner.Accept() {
			fmt.Fprint(c, "220 at ", c.LocalAddr())
			c.Close()
		}
	}()
	names := answerNames(t, map[string][]string{"shop.example.com": {byName}, "rebound.example.com": {"127.0.0.1"}, "own.example.com": {podAddress}})
	dir, data := t.TempDir(), t.TempDir()
	mesh, _, _ := strings.Cut(unknownMesh, "---")
	write(t, dir, "mesh.yaml", mesh)
	d := start(t, "--config-dir", dir, "--data-dir", data)
	eventually(t, patience, d.ready)
	runAgentWith(t, d, data, filepath.Join(data, "root-cert.pem"), "web", podAddress,
		[]string{"ISTIO_META_INTERCEPTION_MODE=REDIRECT", fmt.Sprintf(`ISTIO_METAJSON_DNS={"DNS_CAPTURE":"true","DNS_PROXY_ADDR":%q}`, names)})
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	ask := func(url, host string) string {
		r, err := http.NewRequest("GET", url, nil)
		if err != nil {
			return err.Error()
		}
		r.Host = host
		res, err := client.Do(r)
		if err != nil {
			return err.Error()
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		return fmt.Sprintf("%d %s", res.StatusCode, body)
	}
	eventually(t, patience, func() error {
		if got, want := ask("http://"+sentTo+":8080/", "shop.example.com:8080"), "200 shop.example.com:8080 at "+byName+":8080"; got != want {
			return fmt.Errorf("plain HTTP: %q, want %q", got, want)
		}
		return nil
	})
	for _, host := range []string{"rebound.example.com:15000", "unknown.example.com:8080", "own.example.com:15001"} {
		if got := ask("http://"+sentTo+":8080/", host); !strings.HasPrefix(got, "503 ") {
			t.Errorf("plain HTTP for %s: %q, want 503", host, got)
		}
	}
	if got, want := ask("https://"+sentTo+":8443/", "shop.example.com"), "200 shop.example.com at "+sentTo+":8443"; got != want {
		t.Errorf("TLS: %q, want %q", got, want)
	}
	c, err := dial(t.Context(), "tcp", sentTo+":9000")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := io.ReadAll(c); string(got) != "220 at "+sentTo+":9000" {
		t.Errorf("a server that speaks first: %q, %v", got, err)
	}
	for _, at := range []string{"127.0.0.1", podAddress} {
		if got := ask("http://"+at+":15001/", "shop.example.com:8080"); strings.HasPrefix(got, "200 ") {
			t.Errorf("to the port of redirection at %s: %q", at, got)
		}
	}
}
