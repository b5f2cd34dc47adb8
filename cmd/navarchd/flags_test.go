package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"navarch.io/navarch/cmd/internal/web"
	"navarch.io/navarch/store/kv/kvtest"
)

// The host names for requests to this process are those in its flags and its environment.
// Promise: security-connections.md#http-ports-of-navarchd
func TestDebugNames(t *testing.T) {
	c := &config{httpAddr: "10.9.8.7:8080", advertise: "replica.example:15012", debugHosts: []string{"debug.example"}}
	c.env.podIP, c.env.podNamespace, c.env.customHost = "10.1.2.3", "istio-system", "custom.example"
	h := web.Guard(c.debugNames(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
	for host, want := range map[string]int{
		"localhost:8080": 200, "127.0.0.1": 200, "10.9.8.7:8080": 200, "10.1.2.3:8080": 200, "replica.example:8080": 200, "debug.example": 200,
		"istiod.istio-system.svc:8080": 200, "custom.example": 200, "evil.example": 403, "10.9.8.6:8080": 403,
	} {
		r, w := httptest.NewRequest(http.MethodGet, "/debug/", nil), httptest.NewRecorder()
		r.Host = host
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("%s: %d, want %d", host, w.Code, want)
		}
	}
}

// Levels of log lines can be changed at a loopback address only. If another process uses the address, this one
// continues without it.
// Promise: security-connections.md#http-ports-of-navarchd
func TestAddressOfLevels(t *testing.T) {
	for address, refused := range map[string]bool{"127.0.0.1:9876": false, "[::1]:1": false, "localhost:9876": false, "": false, ":9876": true, "0.0.0.0:9876": true, "*:9876": true, "10.0.0.1:9876": true, "127.0.0.1": true} {
		var named []string
		c := &config{ctrlzAddr: address, mesh: "m", dataDir: "d"}
		c.checkNames(func(format string, args ...any) { named = append(named, fmt.Sprintf(format, args...)) })
		if got := strings.Contains(strings.Join(named, "\n"), "--ctrlz-addr"); got != refused {
			t.Errorf("%q: %q", address, named)
		}
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	var log strings.Builder
	c := &config{ctrlzAddr: taken.Addr().String()}
	if tasks := listenControlZ(c, slog.New(slog.NewTextHandler(&log, nil))); len(tasks) != 0 || !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), c.ctrlzAddr) {
		t.Errorf("%d tasks, and the log is %q", len(tasks), log.String())
	}
}

// Proxies are planned ahead with the same domain as connected ones: with another one the scope would never be used.
func TestPlannedAheadInTheDomain(t *testing.T) {
	c := &config{domain: "example.org"}
	if got := c.fleetConfig(nil, nil, quiet).Domain; got != "svc.example.org" || got != c.serviceDomain() {
		t.Errorf("proxies are planned ahead in %q", got)
	}
}

// A process that requires credentials and cannot verify any does not start. Neither does one with a file for verifying
// and no address that uses it.
func TestCredentialsCanBeVerified(t *testing.T) {
	files := config{roles: []string{"xds"}, secureGRPCAddr: ":15012", tlsCert: "c", tlsKey: "k", env: environment{xdsAuth: true}}
	for name, one := range map[string]struct {
		change func(*config)
		wants  []string // flags that are named; none: it starts
	}{
		"none":             {func(*config) {}, []string{"--secure-grpc-addr", "--tls-cert", "--tls-client-ca", "--token-issuer", "--kek", "XDS_AUTH=false"}},
		"certificates":     {func(c *config) { c.clientCA = "ca" }, nil},
		"tokens":           {func(c *config) { c.tokenIssuer = "i" }, nil},
		"own tokens":       {func(c *config) { c.dataDir = "d" }, nil},
		"keyring":          {func(c *config) { c.kek = "file:k" }, nil},
		"open":             {func(c *config) { c.env.xdsAuth = false }, nil},
		"no address":       {func(c *config) { c.secureGRPCAddr = "" }, nil},
		"no certificate":   {func(c *config) { c.tlsCert, c.tlsKey = "", "" }, nil},
		"no xDS":           {func(c *config) { c.roles = []string{"ingest"} }, nil},
		"no pair":          {func(c *config) { c.clientCA, c.tlsCert, c.kek = "ca", "", "file:k" }, []string{"--tls-client-ca", "--tls-cert", "--tls-key"}},
		"CA to no address": {func(c *config) { c.clientCA, c.secureGRPCAddr = "ca", "" }, []string{"--tls-client-ca", "--secure-grpc-addr"}},
	} {
		c, said := files, []string{}
		one.change(&c)
		c.checkCredentials(func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
		if text := strings.Join(said, "; "); (text == "") != (one.wants == nil) {
			t.Errorf("%s: %s", name, text)
		} else {
			for _, flag := range one.wants {
				if !strings.Contains(text, flag) {
					t.Errorf("%s: %q does not name %s", name, text, flag)
				}
			}
		}
	}
}

// The address of this replica for agents comes from the operator, the Pod, or the listening address; an address that no
// agent could dial is left out.
func TestAdvertised(t *testing.T) {
	for name, c := range map[string]struct {
		c      config
		want   string
		secure bool
	}{
		"the address it listens on":        {config{grpcAddr: "127.0.0.1:15010"}, "127.0.0.1:15010", false},
		"every address":                    {config{grpcAddr: ":15010"}, "", false},
		"every address, IPv6":              {config{grpcAddr: "[::]:15010"}, "", false},
		"the pod's":                        {config{grpcAddr: ":15010", env: environment{podIP: "10.0.0.7"}}, "10.0.0.7:15010", false},
		"the pod's, IPv6":                  {config{grpcAddr: ":15010", env: environment{podIP: "fd00::7"}}, "[fd00::7]:15010", false},
		"secure first":                     {config{grpcAddr: "127.0.0.1:1", secureGRPCAddr: ":15012", tlsCert: "c", env: environment{podIP: "10.0.0.7"}}, "10.0.0.7:15012", true},
		"secure by our own CA":             {config{roles: []string{"ca"}, secureGRPCAddr: "10.0.0.8:15012"}, "10.0.0.8:15012", true},
		"secure by a keyring it follows":   {config{roles: []string{"xds"}, kek: "file:k", grpcAddr: ":15010", secureGRPCAddr: ":15012", env: environment{podIP: "10.0.0.7"}}, "10.0.0.7:15012", true},
		"secure is off":                    {config{grpcAddr: "127.0.0.1:1", secureGRPCAddr: ":15012"}, "127.0.0.1:1", false},
		"the operator's host":              {config{advertise: "a.example", grpcAddr: ":15010", env: environment{podIP: "10.0.0.7"}}, "a.example:15010", false},
		"the operator's port":              {config{advertise: "a.example:99", secureGRPCAddr: ":15012", tlsCert: "c"}, "a.example:99", true},
		"the operator means the plain one": {config{advertise: "a.example:15010", grpcAddr: ":15010", secureGRPCAddr: ":15012", tlsCert: "c"}, "a.example:15010", false},
		"any port":                         {config{grpcAddr: "127.0.0.1:0"}, "", false},
		"nothing":                          {config{}, "", false},
	} {
		if got, secure := c.c.advertised(); got != c.want || secure != c.secure {
			t.Errorf("%s: %q, TLS %v; want %q, %v", name, got, secure, c.want, c.secure)
		}
	}
}

// Role ingest needs a source; an unsupported registry, and variables that would change the selection of a cluster's
// objects, are refused.
func TestSourcesAreNamed(t *testing.T) {
	for _, one := range []struct {
		change func(*config)
		wants  string // text of the error; empty: it starts
	}{
		{func(*config) {}, "--kubeconfig"},
		{func(c *config) { c.configDir = "d" }, ""},
		{func(c *config) { c.kubeconfig = "k" }, ""},
		{func(c *config) { c.registries = "Kubernetes" }, ""},
		{func(c *config) { c.configDir, c.registries = "d", "Consul" }, "--registries"},
	} {
		c, said := config{roles: []string{"ingest"}}, []string{}
		one.change(&c)
		c.checkRoles(func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
		if text := strings.Join(said, "; "); (text == "") != (one.wants == "") || !strings.Contains(text, one.wants) {
			t.Errorf("%+v: said %q, want %q", c, text, one.wants)
		}
	}
}

// A build for production refuses to switch off a control loop, and names the variable.
func TestLoopsStayOn(t *testing.T) {
	for value, refused := range map[string]bool{"": false, "joins": true} {
		var e environment
		err := e.read(func(name string) (string, bool) { return value, name == "NAVARCH_EXPERIMENT_OFF" })
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "NAVARCH_EXPERIMENT_OFF") || e.off("joins") {
			t.Errorf("%q: %v, off %v", value, err, e.loopsOff)
		}
	}
}

// A list of address ranges replaces the previous one, and a list with an error leaves it.
func TestAddressBlocks(t *testing.T) {
	var got []netip.Prefix
	for _, c := range []struct{ text, want string }{{"10.1.2.3/8, fd00::/16", "[10.0.0.0/8 fd00::/16]"},
		{"192.0.2.0/24,x", "[10.0.0.0/8 fd00::/16]"}, {"192.0.2.0/24", "[192.0.2.0/24]"}} {
		if err := addressBlocks(&got)(c.text); fmt.Sprint(got) != c.want || (err != nil) != strings.Contains(c.text, "x") {
			t.Errorf("%s: %v, %v", c.text, got, err)
		}
	}
}

// Role admit is a default for a Kubernetes cluster with a certificate, and is refused without a certificate.
func TestRoleAdmit(t *testing.T) {
	for name, c := range map[string]struct {
		c        config
		defaults bool
		refused  bool
	}{
		"a cluster, our own CA":      {config{kubeconfig: "k", kek: "file:a", httpsAddr: ":1"}, true, false},
		"a cluster, an operator's":   {config{kubeconfig: "k", tlsCert: "c", tlsKey: "k", httpsAddr: ":1"}, true, false},
		"a cluster, no certificate":  {config{kubeconfig: "k", httpsAddr: ":1"}, false, false},
		"files":                      {config{configDir: "d", kek: "file:a", httpsAddr: ":1"}, false, false},
		"no address":                 {config{kubeconfig: "k", kek: "file:a"}, false, false},
		"asked for":                  {config{roles: []string{"admit"}, kek: "file:a", httpsAddr: ":1"}, true, false},
		"asked for, no certificate":  {config{roles: []string{"admit"}, httpsAddr: ":1"}, true, true},
		"asked for, without address": {config{roles: []string{"admit"}, kek: "file:a"}, true, true},
		"alone, of a peer":           {config{roles: []string{"admit"}, caPeers: []string{"ca:1"}, kubeconfig: "k", httpsAddr: ":1"}, true, false},
		"with xds, of a peer":        {config{roles: []string{"admit", "xds"}, caPeers: []string{"ca:1"}, kubeconfig: "k", httpsAddr: ":1"}, true, true},
	} {
		c.c.fill()
		if c.c.has(roleAdmit) != c.defaults {
			t.Errorf("%s: roles %v", name, c.c.roles)
		}
		var said []string
		c.c.checkRoles(func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
		if refused := slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, "role admit") }); refused != c.refused {
			t.Errorf("%s: %q", name, said)
		}
	}
}

// Only a process with role admit alone that follows no keyring does without etcd; without a certificate or a key of its
// own it needs to know the mesh's roots.
func TestWithoutEtcd(t *testing.T) {
	const needsStore, needsRoots = "--etcd-endpoints", "--peer-roots"
	for name, one := range map[string]struct {
		c      config
		refuse string // text of the error; empty: it starts
	}{
		"roots of the cluster":   {config{roles: []string{"admit"}, caPeers: []string{"ca:1"}, kubeconfig: "k"}, ""},
		"roots of a file":        {config{roles: []string{"admit"}, caPeers: []string{"ca:1"}, peerRoots: "r"}, ""},
		"an operator's":          {config{roles: []string{"admit"}, tlsCert: "c", tlsKey: "k"}, ""},
		"no roots":               {config{roles: []string{"admit"}, caPeers: []string{"ca:1"}}, needsRoots},
		"a key encryption key":   {config{roles: []string{"admit"}, kek: "file:k"}, needsStore},
		"another role beside it": {config{roles: []string{"admit", "xds"}, tlsCert: "c", tlsKey: "k"}, needsStore},
		"another role instead":   {config{roles: []string{"xds"}, tlsCert: "c", tlsKey: "k"}, needsStore},
	} {
		var said []string
		one.c.httpsAddr, one.c.mesh = ":1", "m"
		refuse := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
		one.c.checkRoles(refuse)
		one.c.checkNames(refuse)
		text := strings.Join(said, "\n")
		if named := strings.Contains(text, needsStore) || strings.Contains(text, needsRoots); named != (one.refuse != "") || !strings.Contains(text, one.refuse) {
			t.Errorf("%s: %q, want %q", name, text, one.refuse)
		}
	}
}

// A positive answer of the authoriser is used for the time of the flag while the authoriser is away, by default a day;
// push/access has the consequences.
// Promise: security-workloads.md#identity-and-private-keys
func TestRightsMaxAge(t *testing.T) {
	etcd := kvtest.Start(t)
	for flag, want := range map[string]time.Duration{"--roles=xds": 24 * time.Hour, "--secret-rights-max-age=2h": 2 * time.Hour} {
		c := &config{env: environment{podName: "a"}}
		flags := pflag.NewFlagSet("navarchd", pflag.ContinueOnError)
		c.bind(flags)
		if err := flags.Parse([]string{flag}); err != nil {
			t.Fatal(err)
		}
		remembers := reflect.ValueOf(leastReplica(t, c, etcd.Connect()).planner).Elem().FieldByName("access").Elem() // an access.Memory
		if got := time.Duration(remembers.FieldByName("settings").FieldByName("Away").Int()); got != want {
			t.Errorf("%s: it stands for %v, want %v", flag, got, want)
		}
	}
}

// The leader reports Gateways that PILOT_SCOPE_GATEWAY_TO_NAMESPACE keeps from routers of other namespaces.
func TestScopeOfGatewaysReachesTheLeader(t *testing.T) {
	for _, scoped := range []bool{true, false} {
		c := &config{}
		c.env.routers.OwnNamespace = scoped
		if got := c.normal().OwnGateways; got != scoped {
			t.Errorf("scoped %v: the leader has %v", scoped, got)
		}
	}
}
