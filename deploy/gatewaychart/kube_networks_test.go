//go:build kube

package gatewaychart

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"navarch.io/navarch/deploy/testcluster/balancer"
	"navarch.io/navarch/deploy/testcluster/cluster"
)

// Two clusters, each with a control plane and an API server of its own, use the same addresses for Pods and Services.
// The ways between them are addresses of load balancers alone: that of the gateway of the network, and that of the API
// server, for the other control plane. Requests between workloads are by mTLS from proxy to proxy.
func TestKubeTwoNetworks(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("sidecars run as a user of their own, and a link between clusters needs root")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip(err)
	}
	if _, err := cluster.Possible(); errors.Is(err, cluster.ErrImpossible) {
		t.Skip(err)
	}
	east := &member{name: "east", balancers: balancer.Ranges{netip.MustParsePrefix("192.168.245.0/25")}}
	west := &member{name: "west", balancers: balancer.Ranges{netip.MustParsePrefix("192.168.245.128/25")}}
	east.workloads, west.workloads = []string{"client", "other", "web"}, []string{"web", "far"}
	began, root := time.Now(), newRoot(t)
	at := func(what string) { t.Logf("%s after %s", what, time.Since(began).Round(100*time.Millisecond)) }
	table := images(t)
	both := func(f func(m, other *member)) {
		t.Helper()
		var all sync.WaitGroup
		all.Go(func() { f(east, west) })
		all.Go(func() { f(west, east) })
		all.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	both(func(m, _ *member) { m.start(t, table, root) })
	t.Cleanup(func() { east.close(t); west.close(t) })
	at("both clusters are there")
	if err := cluster.Link(east.Cluster, west.Cluster); err != nil {
		t.Fatal(err)
	}
	both(func(m, other *member) { m.join(t, other) })
	at("both meshes are there")

	east.calls(t, "client", "far", 10, "200 west=10")
	at("a service of the other cluster answers")
	who := east.callers(t, "client", "far")
	for _, want := range []string{"URI=spiffe://cluster.local/ns/shop/sa/client", "By=spiffe://cluster.local/ns/shop/sa/far"} {
		if !strings.Contains(who, want) {
			t.Errorf("no %s in %s", want, who)
		}
	}
	east.calls(t, "other", "far", 4, "403 =4")
	east.calls(t, "client", "web", 20, "200 east=1.. west=1..")
	west.enters(t, east, map[string]string{"web": "web", "far": "far", "hidden": "", "alone": "", "clear": ""})
	at("what is exported is reached")

	// Without endpoints in one cluster the other answers; without any, the client's proxy.
	west.scale(t, 0, "web", "far")
	east.calls(t, "client", "web", 20, "200 east=20")
	east.calls(t, "client", "far", 2, "503 =2")
	west.enters(t, east, map[string]string{"web": "", "far": ""})
	west.scale(t, 1, "far")
	east.calls(t, "client", "far", 4, "200 west=4")
	at("endpoints have gone and come")
}

// calls waits until N requests of a workload to a service are all answered with a status, by the clusters as counted:
// "STATUS [CLUSTER=COUNT]...", COUNT is N or "1..".
func (m *member) calls(t *testing.T, from, to string, n int, want string) {
	t.Helper()
	status, shares, _ := strings.Cut(want, " ")
	urls := strings.Repeat(" http://"+to, n)
	script := `set -f; for u in` + urls + `; do r=$(curl -s -m 10 -w ' %{http_code}' $u); echo $r; done`
	cluster.Await(t, m.name+": "+from+" calls "+to, func() string {
		out, err := m.exec(t, from, "bash", "-c", script)
		if err != nil {
			return err.Error()
		}
		by := map[string]int{}
		for line := range strings.Lines(out) {
			if line = strings.TrimSpace(line); !strings.HasSuffix(line, " "+status) && line != status {
				continue
			}
			version := ""
			if _, rest, is := strings.Cut(line, `"version":"`); is {
				version, _, _ = strings.Cut(rest, `"`)
			}
			by[version]++
		}
		total := 0
		for share := range strings.FieldsSeq(shares) {
			who, count, _ := strings.Cut(share, "=")
			if got := by[who]; count == "1.." && got == 0 || count != "1.." && fmt.Sprint(got) != count {
				return fmt.Sprintf("%v, want %s: %s", by, want, out)
			}
			total += by[who]
		}
		if total != n {
			return fmt.Sprintf("%d of %d are %s: %s", total, n, want, out)
		}
		return ""
	})
}

// callers returns the certificates that a request shows to the application, as its proxy reports them.
func (m *member) callers(t *testing.T, from, to string) string {
	t.Helper()
	out, err := m.exec(t, from, "curl", "-s", "-m", "10", "http://"+to)
	if err != nil {
		t.Error(err)
	}
	return out
}

// enters waits until connections from another cluster to the gateway of this one, with the server names of these
// services, end at the proxy of the account, or are closed without a certificate (no account).
func (m *member) enters(t *testing.T, from *member, accounts map[string]string) {
	t.Helper()
	gateway := m.address(t, "edge", "eastwest")
	for service, account := range accounts {
		want := "closed"
		if account != "" {
			want = "spiffe://cluster.local/ns/shop/sa/" + account
		}
		cluster.Await(t, "entering "+service, func() string {
			if got := from.enter(net.JoinHostPort(gateway, "15443"), "outbound_.80_._."+service+".shop.svc.cluster.local"); got != want {
				return got
			}
			return ""
		})
	}
}

// errSeen ends a handshake whose certificate has been seen.
var errSeen = errors.New("seen")

// enter returns the identity of the server at an address by its name, "closed" if the connection ends before a
// certificate, or another error. The connection begins in the outer namespace of this cluster.
func (m *member) enter(address, sni string) (identity string) {
	err := m.Outer(func() error {
		c, err := net.DialTimeout("tcp", address, 5*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		return tls.Client(c, &tls.Config{ServerName: sni, NextProtos: []string{"istio"},
			InsecureSkipVerify: true, //nolint:gosec // the certificate is the result
			VerifyConnection: func(s tls.ConnectionState) error {
				for _, uri := range s.PeerCertificates[0].URIs {
					identity = uri.String()
				}
				return errSeen
			}}).Handshake()
	})
	var timeout net.Error
	switch {
	case errors.Is(err, errSeen):
		return identity
	case err == nil || errors.As(err, &timeout) && timeout.Timeout() || opOf(err) == "dial":
		return fmt.Sprint("no answer: ", err)
	}
	return "closed"
}

// opOf returns the operation that an error of a connection is of.
func opOf(err error) string {
	var of *net.OpError
	if errors.As(err, &of) {
		return of.Op
	}
	return ""
}
