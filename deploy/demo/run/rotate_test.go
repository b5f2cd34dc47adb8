package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/seal/kmstest"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/loopback"
	"navarch.io/navarch/store/programs"
)

const quickTTL = 10 * time.Second // of leaves: each is renewed after about half of it

// replica is one navarchd of several, at addresses that it keeps.
type replica struct {
	name, secure, http, monitoring string
	proc                           *proc
}

// turning is a mesh in which everything about identity changes: two workloads with redirection, an etcd, a KMS plugin
// and two replicas behind one address.
type turning struct {
	*mesh
	t        *testing.T
	ctx      context.Context
	etcd     string
	kms      *kmstest.Plugin
	replicas []*replica
	flows    []*flow
	stop     func() // ends the load
	began    time.Time
}

func (r *turning) step(format string, args ...any) {
	r.t.Logf("%5.1fs  "+format, append([]any{time.Since(r.began).Seconds()}, args...)...)
}

func (r *turning) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *turning) await(what string, limit time.Duration, ok func(context.Context) error) {
	r.t.Helper()
	r.must(r.children.await(r.ctx, what, limit, ok))
}

// start runs a replica, and returns once it is ready; more are flags.
func (r *turning) start(one *replica, more ...string) {
	r.t.Helper()
	r.launch(one, more...)
	r.await(one.name+" ready", startLimit, func(ctx context.Context) error { return r.ready(ctx, one) })
}

func (r *turning) ready(ctx context.Context, one *replica) error {
	_, err := ask(ctx, r.control(), http.MethodGet, "http://"+one.http+"/ready")
	return err
}

func (r *turning) launch(one *replica, more ...string) {
	r.t.Helper()
	env := []string{"DEFAULT_WORKLOAD_CERT_TTL=" + quickTTL.String()}
	argv := append([]string{r.bin("navarchd"), "--config-dir", r.config, "--etcd-endpoints", r.etcd, "--mesh", kvtest.Mesh,
		"--kek", "kms:" + r.kms.Socket(), "--state-dir", filepath.Join(r.dir, one.name), "--leader-lease", "2s",
		"--token-issuer", attest.LocalIssuer, "--token-keys", filepath.Join(r.dir, "token-keys.json"),
		"--secure-grpc-addr", one.secure, "--http-addr", one.http, "--monitoring-addr", one.monitoring}, more...)
	p, err := r.children.spawn(one.name, env, argv...)
	r.must(err)
	one.proc = p
}

func (r *turning) kill(one *replica) {
	r.children.forget(one.proc)
	one.proc.kill()
}

// operate runs navarchctl ca.
func (r *turning) operate(args ...string) string {
	r.t.Helper()
	out, err := r.ctl(r.ctx, append(append([]string{"ca"}, args...), "--etcd-endpoints", r.etcd, "--mesh", kvtest.Mesh, "--kek", "kms:"+r.kms.Socket())...)
	r.must(err)
	return out
}

func (r *turning) newReplica(name string) *replica {
	one := &replica{name: name}
	for _, a := range []*string{&one.secure, &one.http, &one.monitoring} {
		addr, err := loopback.On(r.listen)
		r.must(err)
		*a = addr
	}
	return one
}

// build prepares everything and starts it, up to two Envoys that serve.
func build(t *testing.T) *turning {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	r := &turning{t: t, ctx: ctx, etcd: kvtest.Start(t).Endpoint(), kms: kmstest.Start(t), began: time.Now()}
	r.mesh, err = newMesh(root, "deploy/demo/intercept", filepath.Dir(programs.For(t, "navarchd")))
	r.must(err)
	t.Cleanup(func() {
		r.children.stopAll()
		if t.Failed() {
			t.Logf("logs and YAML of this run are kept in %s", r.dir)
			return
		}
		os.RemoveAll(r.dir)
	})
	extra, err := os.ReadFile("testdata/rotate.yaml")
	r.must(err)
	r.must(os.WriteFile(filepath.Join(r.config, "rotate.yaml"), extra, 0o644))
	r.must(editObject(r.config, "PeerAuthentication", "default", func(o map[string]any) error {
		o["spec"] = map[string]any{"mtls": map[string]any{"mode": "STRICT"}}
		return nil
	}))
	r.services, err = readServices(r.config)
	r.must(err)
	spaces, down, err := wireUp(ctx, r.agent, []string{r.services.workloads[0].ip, r.services.workloads[1].ip})
	r.must(err)
	t.Cleanup(down)
	r.must(r.placeIn(spaces))
	server := r.places[r.services.workloads[1].pod]
	server.app = "0.0.0.0:9080,0.0.0.0:9090,0.0.0.0:9091,0.0.0.0:9092"
	r.places[r.services.workloads[1].pod] = server

	r.must(os.MkdirAll(r.data(), 0o755))
	issuer, err := attest.Local(r.data())
	r.must(err)
	r.must(os.WriteFile(filepath.Join(r.dir, "token-keys.json"), issuer.JWKS(), 0o644))
	r.replicas = []*replica{r.newReplica("navarchd-a"), r.newReplica("navarchd-b")}
	balance(t, r.grpc, r.replicas[0].secure, r.replicas[1].secure)
	for _, one := range r.replicas {
		r.start(one)
	}
	r.await("a root", startLimit, func(ctx context.Context) error {
		roots, err := r.ctl(ctx, "ca", "roots", "--etcd-endpoints", r.etcd, "--mesh", kvtest.Mesh, "--kek", "kms:"+r.kms.Socket())
		if err == nil {
			err = os.WriteFile(filepath.Join(r.data(), "root-cert.pem"), []byte(roots), 0o644)
		}
		return err
	})
	r.must(r.startWorkloads(ctx))
	r.step("two replicas and two Envoys serve")
	r.load(spaces[0])
	return r
}

// load begins: everything that must pass, and what must never pass.
func (r *turning) load(client netns) {
	const id, pod = "URI=spiffe://cluster.local/ns/redirect/sa/client", "10.77.0.2"
	r.flows = []*flow{
		{name: "HTTP, kept connections", url: "http://10.96.0.10/", host: "server", caller: id},
		{name: "HTTP, a handshake for each request", url: "http://10.96.0.12/", host: "fresh", fresh: true, caller: id},
		{name: "TCP, kept connections", url: "http://10.96.0.11:9000/"},
		{name: "TCP, a handshake for each request", url: "http://10.96.0.11:9000/", fresh: true},
		{name: "PERMISSIVE port, by mTLS", url: "http://10.96.0.13/", host: "open", caller: id},
		{name: "PERMISSIVE port, plain text, kept", url: "http://" + pod + ":9092/"},
		{name: "PERMISSIVE port, plain text, new", url: "http://" + pod + ":9092/", fresh: true},
		{name: "STRICT port, plain text: refused", url: "http://" + pod + ":9080/", fresh: true, refused: true},
		{name: "TCP of another principal: refused", url: "http://10.96.0.14:9001/", fresh: true, refused: true},
	}
	for _, f := range r.flows { // each passes, or is refused, before it counts: proxies that are ready may know less than all
		f.client = &http.Client{Timeout: askLimit, Transport: &http.Transport{DialContext: client.dial, DisableKeepAlives: true}}
		r.await(f.name, startLimit, f.ask)
	}
	r.stop = under(client, r.flows)
	r.t.Cleanup(r.stop)
}

// seen returns the certificates and roots that both Envoys use now, by Pod.
func (r *turning) seen(ctx context.Context) (leaves map[string]certificate, roots, revoked map[string][]string, err error) {
	leaves, roots, revoked = map[string]certificate{}, map[string][]string{}, map[string][]string{}
	for _, w := range r.services.workloads {
		all, err := r.inUse(ctx, w)
		if err != nil {
			return nil, nil, nil, err
		}
		for _, c := range all {
			switch c.kind {
			case "leaf":
				leaves[w.pod] = c
			case "root":
				roots[w.pod] = append(roots[w.pod], c.epoch)
			case "crl":
				revoked[w.pod] = append(revoked[w.pod], c.serial)
			}
		}
	}
	return leaves, roots, revoked, nil
}

// renewals waits until both Envoys had n more leaves.
func (r *turning) renewals(n int) {
	r.t.Helper()
	serials := map[string][]string{}
	r.await(fmt.Sprintf("%d renewals at each Envoy", n), startLimit+time.Duration(n)*quickTTL, func(ctx context.Context) error {
		leaves, _, _, err := r.seen(ctx)
		if err != nil {
			return err
		}
		least := n
		for pod, c := range leaves {
			if !slices.Contains(serials[pod], c.serial) {
				serials[pod] = append(serials[pod], c.serial)
			}
			least = min(least, len(serials[pod])-1)
		}
		if least < n {
			return fmt.Errorf("only %d", least)
		}
		return nil
	})
	r.step("%d renewals at each Envoy", n)
}

// Under steady load, HTTP and TCP, on open and on new connections, STRICT and PERMISSIVE: leaves rotate every few
// seconds, revocation lists and roots are pushed, the signer switches to a new root, each replica of the CA is killed
// and restarted, and the provider of the key encryption key stops and returns. No request fails, and refused clients
// stay refused.
func TestRotationUnderLoad(t *testing.T) {
	if err := canIntercept(); err != nil {
		t.Skipf("real redirection needs root, ip and setpriv: %v", err)
	}
	r := build(t)
	r.renewals(2)
	r.pushList()
	a, b := r.replicas[0], r.replicas[1]
	for _, one := range r.replicas {
		r.kill(one)
		r.step("%s killed", one.name)
		r.renewals(1)
		r.start(one)
		r.step("%s is back", one.name)
	}
	r.withoutKMS(a)
	r.laggard()
	r.rotation()
	r.renewals(1)
	r.await("the replica that was sealed signs again", startLimit, func(ctx context.Context) error { return r.signs(ctx, a) })
	r.kill(b)
	r.step("%s killed: what was sealed is alone", b.name)
	r.renewals(1)
	r.stop()
	judge(t, r.flows, 20*perFlow)
	r.unhidden()
	r.treasurer()
}

// unhidden wants of Envoy's own counters that nothing failed that a retry made good, and that no handshake was judged
// badly; the Envoys are those of the beginning.
func (r *turning) unhidden() {
	r.t.Helper()
	for _, w := range r.services.workloads {
		for what, filter := range map[string]string{
			"retries": `^cluster\..*\.upstream_rq_retry$`, "failed connections": `^cluster\.(out|in)bound.*\.upstream_cx_connect_fail$`,
			"refused certificates": refusedCertificates,
		} {
			if n, err := r.stat(r.ctx, w, filter); err != nil || n != 0 {
				r.t.Errorf("the Envoy of %s: %d %s, %v", w.pod, n, what, err)
			}
		}
		if n, err := r.stat(r.ctx, w, `^(cluster\.outbound|listener\.0\.0\.0\.0_15006).*\.ssl\.handshake$`); err != nil || n < 20*perFlow {
			r.t.Errorf("the Envoy of %s: %d handshakes, %v", w.pod, n, err)
		}
		page, err := r.page(r.ctx, w)
		if err != nil || page.Envoy.Starts != 1 {
			r.t.Errorf("the Envoy of %s: %d starts, %v", w.pod, page.Envoy.Starts, err)
		}
	}
}
