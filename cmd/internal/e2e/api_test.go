package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchd/api"
	"navarch.io/navarch/cmd/navarchd/api/ask"
	sim "navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/store/kv/kvtest"
)

// apiAnswer reads an answer of the API: of this machine with an empty token, else as a caller of another machine.
func apiAnswer[T any](t *testing.T, d *daemon, path, token string) (a fleetapi.Answer[T], err error) {
	t.Helper()
	code, body := 0, ""
	if token == "" {
		if body, err = get(d.http, fleetapi.Root+path); err != nil {
			return a, err
		}
	} else if code, body = askedFrom(t, d, fleetapi.Root+path, token); code != http.StatusOK {
		return a, fmt.Errorf("%s: %d: %s", path, code, body)
	}
	if err = json.Unmarshal([]byte(body), &a); err == nil && a.Schema != fleetapi.Schema {
		err = fmt.Errorf("schema %q", a.Schema)
	}
	return a, err
}

// inTokens returns the flags of replicas that verify tokens, and a function that makes tokens.
func inTokens(t *testing.T) (flags []string, of func(namespace string) string) {
	t.Helper()
	data := t.TempDir()
	issuer, err := attest.Local(data)
	if err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(data, "keys.json")
	if err := os.WriteFile(keys, issuer.JWKS(), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--token-issuer", issuer.Name(), "--token-keys", keys}, func(namespace string) string {
		return token(t, data, namespace, "app")
	}
}

// Any replica answers for all three, to a tenant what it may see and nothing else, and names the one that does not
// answer. A client that is no replica cannot ask in the name of others.
func TestEveryReplicaAnswersForAll(t *testing.T) {
	parallel(t)
	f := &fleetOf{t: t, store: "--etcd-endpoints=" + kvtest.Start(t).Endpoint(), dir: folder(t)}
	flags, tokenOf := inTokens(t)
	f.flags = flags
	spaces := ""
	for _, name := range []string{"team-0", "team-1"} {
		spaces += fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {navarch.io/tenant: t}}\n---\n", name)
	}
	write(t, f.dir, "spaces.yaml", spaces)
	ingest := start(t, "--roles=ingest", "--config-dir", f.dir, f.store, "--leader-lease", lease)
	eventually(t, patience, ingest.leading)
	for range 3 {
		f.add()
	}
	settled(t, f.replicas()...)
	c := f.gather()
	c.grow(60, false, f.addresses)
	for _, d := range f.replicas() {
		eventually(t, patience, func() error {
			all, err := apiAnswer[fleetapi.Proxy](t, d, "proxies", "")
			if in := (fleetapi.Counts{InSync: 60}); err == nil &&
				(all.Sums.Total != in || len(all.Items) != 60 || len(all.Partial) != 0 || len(all.Sums.Replicas) != 3) {
				err = fmt.Errorf("%+v, %d items, without %v", all.Sums, len(all.Items), all.Partial)
			}
			return err
		})
	}

	makeMistakes(t, f, ingest)
	write(t, f.dir, "routes.yaml", routes(2))
	for _, d := range f.replicas() {
		eventually(t, patience, func() error {
			all, err := apiAnswer[fleetapi.Change](t, d, "changes?limit=5&object="+"VirtualService%20shop/web", "")
			if err != nil || len(all.Items) == 0 {
				return fmt.Errorf("%+v, %w", all, err)
			}
			if one := all.Items[0]; one.Affected != 60 || one.Acknowledged != 60 || one.Pending != 0 || one.Replicas != 3 || one.All == 0 {
				return fmt.Errorf("%+v", one)
			}
			return nil
		})
	}

	tenantsAnswersAreEqual(t, f, tokenOf("team-0"))
	problemsOfAll(t, f, ingest)
	forged(t, f.replicas()[0])
	windows(t, f.replicas()[0])

	// A proxy that goes is gone until it comes back.
	c.shrink(59)
	eventually(t, patience, func() error {
		all, err := apiAnswer[fleetapi.Proxy](t, f.replicas()[1], "proxies?limit=0", "")
		if want := (fleetapi.Counts{InSync: 59, Gone: 1}); err == nil && all.Sums.Total != want {
			err = fmt.Errorf("%+v", all.Sums)
		}
		return err
	})

	recordedSums(t, f.replicas(), tokenOf("team-0"))

	// A replica that hangs is named, soon; navarchctl names it, too.
	stopped := f.replicas()[2]
	if err := stopped.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	part, err := apiAnswer[fleetapi.Proxy](t, f.replicas()[0], "proxies", "")
	took := time.Since(began)
	if err != nil || len(part.Partial) != 1 || !strings.Contains(part.Partial[0].Reason, "no answer within 2s") {
		t.Fatalf("%+v, %v", part.Partial, err)
	}
	within(t, 3*time.Second, took, "an answer without the replica that hangs")
	if last := part.Partial[0].Last; last == nil || last.Sums.Total.Connected() == 0 || last.Age <= 0 {
		t.Errorf("what it recorded last: %+v", last)
	}
	name := fmt.Sprint("-", stopped.cmd.Process.Pid)
	all, err := apiAnswer[api.Replica](t, f.replicas()[0], "replicas", "")
	if err != nil || len(all.Items) != 3 || !strings.HasSuffix(part.Partial[0].Replica, name) {
		t.Errorf("%+v, %+v, %v", all, part.Partial, err)
	}
	began = time.Now()
	out, err := exec.CommandContext(t.Context(), binary(t, "navarchctl"), "ps", "--server", stopped.http+","+f.replicas()[0].http,
		"--where", "state=in-sync", "--limit", "3").CombinedOutput()
	within(t, 3*time.Second, time.Since(began), "navarchctl proxy-status, which asks the replica that hangs first")
	if err != nil {
		t.Error(err)
	}
	says(t, string(out), "proxies: in sync, 0 behind, 0 refusing", "NAME CDS REPLICA", "more proxies are not listed")
	missing, err := exec.CommandContext(t.Context(), binary(t, "navarchctl"), "problems", "--server", f.replicas()[0].http+","+ingest.http,
		"-n", "nowhere", "--exit-code").CombinedOutput()
	if after, err := apiAnswer[api.Replica](t, f.replicas()[0], "replicas", ""); err != nil || len(after.Items) != 3 { // its lease is over
		return
	}
	says(t, string(out), "warning: proxies may be missing because 1 replicas are not in it: "+name)
	says(t, string(missing), "warning: problems may be missing because 1 replicas are not in it: "+name, "No problems.")
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 4 {
		t.Errorf("problems without a replica: %v, want exit code 4", err)
	}
}

// mistaken is a VirtualService that the leader refuses, and an EnvoyFilter, of a namespace.
const mistaken = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: refused, namespace: NS}
spec: {hosts: [refused.example], http: [{timeuot: 1s}]}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: slow, namespace: NS}
spec: {configPatches: [{applyTo: CLUSTER, patch: {operation: MERGE, value: {connect_timeout: 2s}}}]}
`

// makeMistakes writes mistaken for two namespaces, and waits until the leader has stored them.
func makeMistakes(t *testing.T, f *fleetOf, leader *daemon) {
	t.Helper()
	for _, namespace := range []string{"team-0", "team-2"} {
		write(t, f.dir, namespace+".yaml", strings.ReplaceAll(mistaken, "NS", namespace))
	}
	eventually(t, patience, func() error {
		all, err := apiAnswer[fleetapi.Problem](t, leader, "problems?severity=error", "")
		if err == nil && (len(all.Items) < 2 || len(all.Partial) != 3) { // it has no certificate, and cannot ask the replicas
			err = fmt.Errorf("%+v", all)
		}
		return err
	})
}

// problemsOfAll checks that navarchctl lists the problems and the counts of patches of all processes, and that the API
// of a replica names the leader, which serves no proxies and cannot be asked by replicas.
func problemsOfAll(t *testing.T, f *fleetOf, leader *daemon) {
	t.Helper()
	replica, name := f.replicas()[1], fmt.Sprint("-", leader.cmd.Process.Pid)
	seen, next := map[string]bool{}, ""
	for windows := 0; windows == 0 || next != ""; windows++ {
		a, err := apiAnswer[fleetapi.Problem](t, leader, "problems?limit=1&continue="+next, "")
		if err != nil || len(a.Items) > 1 || windows > 100 {
			t.Fatalf("window %d: %+v, %v", windows, a, err)
		}
		for _, p := range a.Items {
			seen[p.Object] = true
		}
		next = a.Next
	}
	if !seen["VirtualService team-0/refused"] || !seen["VirtualService team-2/refused"] {
		t.Errorf("in all windows: %v", seen)
	}
	all, err := apiAnswer[fleetapi.Problem](t, replica, "problems", "")
	if err != nil || len(all.Partial) != 1 || !strings.HasSuffix(all.Partial[0].Replica, name) || !all.Partial[0].Unable {
		t.Errorf("a replica names the leader: %+v, %v", all.Partial, err)
	}
	for _, servers := range []string{leader.http + "," + replica.http, replica.http + "," + leader.http} {
		out, err := exec.CommandContext(t.Context(), binary(t, "navarchctl"), "problems", "--server", servers).CombinedOutput()
		if err != nil || strings.Contains(string(out), "may be missing") {
			t.Errorf("%s: %v %s", servers, err, out)
		}
		says(t, string(out), "error VirtualService team-0/refused", "error VirtualService team-2/refused")
		counts, err := exec.CommandContext(t.Context(), binary(t, "navarchctl"), "patches", "--server", servers).CombinedOutput()
		if err != nil || strings.Contains(string(counts), "may be missing") {
			t.Errorf("%s: %v %s", servers, err, counts)
		}
		says(t, string(counts), "EnvoyFilter team-0/slow configPatches[0] CLUSTER MERGE")
	}
	for _, d := range append(f.replicas(), leader) { // whichever has the proxy
		server := []string{"--server", d.http}
		if d == leader {
			server[1] += "," + replica.http
		}
		says(t, ctl(t, append(server, "ps", "app-2.team-2")...), "app-2.team-2 SYNCED")
		says(t, ctl(t, append(server, "explain", "--proxy", "app-2.team-2", webCluster[strings.LastIndexByte(webCluster, ' ')+1:])...), "Service shop/web")
	}
	counts, err := apiAnswer[inspect.Patch](t, replica, "patches", "")
	if err != nil || len(counts.Items) != 2 || counts.Items[0].Changed == nil || *counts.Items[0].Changed == 0 || len(counts.Partial) > 0 {
		t.Errorf("patches by way of a replica: %+v, %v", counts, err)
	}
	says(t, ctl(t, "leader", "--server", leader.http+","+replica.http), "LEADER STORED", name)
	if l, err := apiAnswer[inspect.Leader](t, leader, "leader", ""); err != nil || len(l.Items) != 1 || !l.Items[0].Self || l.Items[0].Name == "" {
		t.Errorf("the leader of itself: %+v, %v", l, err)
	}
	for _, d := range []*daemon{leader, replica} {
		type held struct{ Leader string }
		if r, err := apiAnswer[held](t, d, "removals", ""); err != nil || len(r.Items) != 1 || !strings.HasSuffix(r.Items[0].Leader, name) {
			t.Errorf("removals: %+v, %v", r, err)
		}
	}
	if body, err := get(leader.http, fleetapi.Root+"patches?alone=true"); err == nil {
		t.Errorf("an empty list of a leader: %s", body)
	}
}

// recordedSums checks that each replica has the sums of all as they recorded them, and shows them to no tenant.
func recordedSums(t *testing.T, replicas []*daemon, tenant string) {
	t.Helper()
	for _, d := range replicas {
		eventually(t, patience, func() error {
			a, err := apiAnswer[fleetapi.RecordedSums](t, d, "sums", "")
			if in := (fleetapi.Counts{InSync: 59}); err == nil && (len(a.Items) != 3 || a.Sums.Total != in || len(a.Sums.Replicas) != 3) {
				err = fmt.Errorf("%+v, %+v", a.Sums, a.Items)
			}
			return err
		})
		if code, body := askedFrom(t, d, fleetapi.Root+"sums", tenant); code != http.StatusForbidden {
			t.Errorf("a tenant: %d %s", code, body)
		}
		metrics, err := get(d.monitoring, "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		says(t, metrics, `navarch_tenant_delivery_seconds_count{tenant="`, `navarch_tenant_deliveries_total{result="acknowledged",tenant="`)
	}
	out, err := exec.CommandContext(t.Context(), binary(t, "navarchctl"), "ps", "--recorded", "--server", replicas[0].http).CombinedOutput()
	if err != nil {
		t.Error(err)
	}
	says(t, string(out), "59 proxies: 59 in sync, 0 behind, 0 refusing", "REPLICA STATE AGE IN SYNC", "ready")
}

// ownRoute is a VirtualService that a tenant plans.
const ownRoute = `{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: own, namespace: team-0}, spec: ` +
	`{hosts: [web.shop.svc.cluster.local], http: [{timeout: 9s, route: [{destination: {host: web.shop.svc.cluster.local}}]}]}}`

// tenantsAnswersAreEqual checks that a tenant's answers by way of any replica are equal, and show nothing of others.
func tenantsAnswersAreEqual(t *testing.T, f *fleetOf, own string) {
	t.Helper()
	changes, err := apiAnswer[fleetapi.Change](t, f.replicas()[0], "changes?limit=1", own)
	if err != nil || len(changes.Items) != 1 || changes.Items[0].Affected != 4 {
		t.Fatalf("%+v, %v", changes, err)
	}
	delivered := fmt.Sprint("deliveries?revision=", changes.Items[0].Last)
	for _, path := range []string{"plan", delivered, delivered + "&object=VirtualService%20team-0/own", "proxies?limit=100", "proxies?limit=1&sort=since", "problems", "patches", "changes", "syncz", "syncz?limit=1&name=app-0.team-0",
		"config/app-0.team-0",
		"describe?noun=pod&namespace=team-0&name=app-0", "describe?noun=host&name=web.shop", "describe?noun=pod&namespace=team-2&name=app-2",
		"explain?proxy=app-0.team-0&resource=" + webCluster[strings.LastIndexByte(webCluster, ' ')+1:]} {
		var bodies []string
		for _, d := range f.replicas() {
			code, body := postedFrom(t, d, fleetapi.Root+path, own, map[string]string{"plan": ownRoute}[path])
			for _, want := range map[string][]string{"plan": {`"act":"created"`, `"proxies":4`, "app-0.team-0"},
				"syncz": {`"proxy":"app-0.team-0"`, `"cluster_synced":true`}, "patches": {`"object":"EnvoyFilter team-0/slow"`},
				delivered: {`"done":true`, `"acknowledged":4`}}[path] {
				if !strings.Contains(body, want) {
					t.Errorf("%s: no %s in %.900s", path, want, body)
				}
			}
			partial := path != "problems" // a replica cannot ask the leader, which serves no proxies
			if code != http.StatusOK || strings.Contains(body, "team-2") || strings.Contains(body, `"partial":[{`) == partial {
				t.Errorf("%s: %d %.300s", path, code, body)
			}
			bodies = append(bodies, body)
		}
		if slices.Sort(bodies); len(slices.Compact(bodies)) != 1 {
			t.Errorf("%s: the replicas' answers differ:\n%.600s\n%.600s", path, bodies[0], bodies[len(bodies)-1])
		}
	}
	tenants, err := apiAnswer[fleetapi.Proxy](t, f.replicas()[1], "proxies", own)
	if err != nil || tenants.Sums.Total.Connected() != 4 { // 60 in 40 namespaces: two in each of the first 20
		t.Errorf("%+v, %v", tenants.Sums, err)
	}
	for path, want := range map[string]int{"config/app-2.team-2": 404, "explain?proxy=app-2.team-2&resource=x": 404, "replicas": 403, "leader": 403,
		"proxies?nonsense=1": 400, "proxies?limit=-1": 400, "nothing": 404, "describe?noun=pod": 400, "deliveries?revision=1&object=VirtualService%20team-2/x": 400} {
		if code, body := askedFrom(t, f.replicas()[0], fleetapi.Root+path, own); code != want {
			t.Errorf("%s: %d, want %d: %s", path, code, want, body)
		}
	}
	if code, _ := askedFrom(t, f.replicas()[0], fleetapi.Root+"proxies", ""); code != http.StatusUnauthorized {
		t.Errorf("without a token: %d", code)
	}
}

// windows reads the list of 60 proxies in windows: each proxy is in one.
func windows(t *testing.T, d *daemon) {
	t.Helper()
	seen, next := map[string]bool{}, ""
	for windows := 0; windows == 0 || next != ""; windows++ {
		a, err := apiAnswer[fleetapi.Proxy](t, d, "proxies?limit=25&continue="+next, "")
		if err != nil || windows > 3 {
			t.Fatalf("window %d: %v", windows, err)
		}
		for _, p := range a.Items {
			seen[p.Proxy] = true
		}
		next = a.Next
	}
	if len(seen) != 60 {
		t.Errorf("%d proxies in all windows", len(seen))
	}
}

// forged asks a replica as a proxy of the mesh does that claims to ask for a caller who sees everything.
func forged(t *testing.T, d *daemon) {
	t.Helper()
	conf, err := fleetCA.proxies(t)(sim.Identity{Namespace: "istio-system", Name: "istiod", ServiceAccount: "istiod"})
	if err != nil {
		t.Fatal(err)
	}
	for name, creds := range map[string]credentials.TransportCredentials{"a certificate": credentials.NewTLS(conf),
		"no certificate": credentials.NewTLS(&tls.Config{RootCAs: conf.RootCAs, ServerName: conf.ServerName})} {
		conn, err := grpc.NewClient("passthrough:///"+d.secure, grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		question := wrapperspb.Bytes([]byte(`{"endpoint": "proxies", "caller": {"name": "x", "all": true}}`))
		err = conn.Invoke(ctx, ask.Method, question, &wrapperspb.BytesValue{})
		cancel()
		conn.Close()
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Replicas whose certificates are the mesh's own, each with its own key, accept each other.
func TestReplicasAskByTheMeshsCertificates(t *testing.T) {
	parallel(t)
	store := "--etcd-endpoints=" + kvtest.Start(t).Endpoint()
	mesh := newEnrolment(t, store)
	ingest := start(t, "--roles=ingest", "--config-dir", folder(t), store)
	eventually(t, patience, ingest.leading)
	first, second := mesh.replica(store), mesh.replica(store)
	for _, d := range []*daemon{first, second} {
		eventually(t, patience, func() error {
			all, err := apiAnswer[api.Replica](t, d, "replicas", "")
			if err == nil && (len(all.Items) != 2 || !all.Items[0].Answered || !all.Items[1].Answered || len(all.Partial) > 0) {
				err = fmt.Errorf("%+v", all)
			}
			return err
		})
	}
}
