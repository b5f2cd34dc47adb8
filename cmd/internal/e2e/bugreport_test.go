package e2e

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"navarch.io/navarch/cmd/internal/report"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/loopback"
)

// offlineCases are cases for navarchctl test.
const offlineCases = `
cases:
- name: the web
  from: client-0.shop
  request: {method: GET, url: 'http://web.shop:80/'}
  want: {outcome: unserved}
`

// took is the time that a plan took.
var took = regexp.MustCompile(`Planned in [0-9.]+ s\.|"seconds": [0-9.]+,?`)

// Every command that reads gives the same answer about a control plane and about a snapshot of it. Commands that write
// or wait refuse a snapshot by name.
func TestSnapshotAnswersAsTheControlPlane(t *testing.T) {
	parallel(t)
	dir, scratch := folder(t), t.TempDir()
	write(t, dir, "bad.yaml", strings.Replace(strings.Replace(routes(1), "name: web", "name: lost", 1), "host: web", "host: nowhere", 1))
	write(t, dir, "unnamed.yaml", "{apiVersion: v1, kind: Service, metadata: {name: unnamed, namespace: shop}, "+
		"spec: {clusterIP: 10.96.9.9, selector: {app: nobody}, ports: [{port: 81}]}}\n")
	write(t, scratch, "change.yaml", routes(7))
	write(t, scratch, "cases.yaml", offlineCases)
	d := start(t, "--config-dir", dir, "--data-dir", t.TempDir())
	eventually(t, patience, d.ready)
	envoy(t, d.grpc, loopback.NetFor(t)+".1")
	eventually(t, patience, func() error {
		out, err := exec.Command(binary(t, "navarchctl"), "proxy-status", "--server", d.http, "client-0.shop").CombinedOutput()
		if err != nil || strings.Count(string(out), "SYNCED") != 4 {
			return fmt.Errorf("%v: %s", err, out)
		}
		return nil
	})
	file := filepath.Join(scratch, "mesh.tgz")
	says(t, ctl(t, "snapshot", "save", "--out", file, "--server", d.http), "mesh.tgz: 1 processes, 1 proxies, records of revision")

	cluster := "outbound|80||web.shop.svc.cluster.local"
	for _, args := range [][]string{
		{"proxy-status"}, {"proxy-status", "client-0.shop"}, {"ps", "-o", "yaml"}, {"proxy-status", "--where", "state=behind", "-o", "json"},
		{"proxy-config", "all", "client-0.shop", "-o", "json"}, {"proxy-config", "cluster", "client-0", "-n", "shop"},
		{"explain", "--proxy", "client-0.shop", cluster}, {"explain", "--proxy", "client-0.shop", "80", "-o", "json"},
		{"why", "--from", "client-0.shop", "GET", "http://web.shop:80/"}, {"test", filepath.Join(scratch, "cases.yaml")},
		{"authz", "check", "--to", "client-0.shop", "GET", "/"}, {"who-can", "--to", "client-0.shop", "GET", "/"},
		{"problems"}, {"problems", "-o", "json", "--severity", "warning"}, {"patches"}, {"removals", "list"}, {"version", "--short"},
		{"plan", "-f", filepath.Join(scratch, "change.yaml"), "-o", "json"}, {"plan", "-f", filepath.Join(scratch, "change.yaml"), "--delete"},
		{"describe", "pod", "client-0.shop"}, {"describe", "service", "web.shop", "-o", "json"}, {"describe", "host", "web.shop"},
		{"describe", "route", "web.shop"}, {"describe", "pod", "nobody.shop"},
		{"explain", "--proxy", "nobody.shop", "80"}, {"proxy-status", "nobody.shop"},
	} {
		live, liveErr := exec.Command(binary(t, "navarchctl"), append(args, "--server", d.http)...).Output()
		kept, keptErr := exec.Command(binary(t, "navarchctl"), append([]string{"--snapshot", file}, args...)...).Output()
		if fmt.Sprint(liveErr) != fmt.Sprint(keptErr) || len(live) == 0 != (len(kept) == 0) {
			t.Errorf("%v: live %v %.600s\nsnapshot %v %.600s", args, liveErr, live, keptErr, kept)
			continue
		}
		same := strings.ReplaceAll(string(kept), "navarchctl --snapshot "+file+" ", "navarchctl ") // in the next command
		if args[0] != "version" && took.ReplaceAllString(string(live), "") != took.ReplaceAllString(same, "") {
			t.Errorf("%v: live\n%.1500s\nsnapshot\n%.1500s", args, live, kept)
		}
	}
	says(t, string(outputOf(t, "--snapshot", file, "analyze")), "nowhere", "[IST0118] (Service shop/unnamed)",
		"note: not checked on a report: IST0102, ")
	says(t, string(outputOf(t, "--snapshot", file, "leader")), "LEADER STORED")
	for _, args := range [][]string{{"wait", "virtualservice", "web.shop"}, {"apply", "-f", file}, {"removals", "accept", "x"},
		{"log"}, {"bug-report"}} {
		out, err := exec.Command(binary(t, "navarchctl"), append([]string{"--snapshot", file}, args...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), strings.Join(args[:1], " ")) || !strings.Contains(string(out), "does not read reports") {
			t.Errorf("%v: %v %s", args, err, out)
		}
	}
	out, err := exec.Command(binary(t, "navarchctl"), "--snapshot", file, "ps", "--server", d.http).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "excludes --server") {
		t.Errorf("%v %s", err, out)
	}
}

// outputOf returns the output of navarchctl, whatever its exit code.
func outputOf(t *testing.T, args ...string) []byte {
	t.Helper()
	out, _ := exec.Command(binary(t, "navarchctl"), args...).CombinedOutput()
	return out
}

// A report is made by way of any replica, with one replica stopped, and with etcd away. It names who is missing. A
// tenant gets none. It has no key, token or password of the test.
func TestBugReport(t *testing.T) {
	parallel(t)
	etcd := kvtest.Start(t)
	const password = "correct-horse-battery"
	f := &fleetOf{t: t, store: "--etcd-endpoints=" + etcd.Endpoint(), dir: folder(t),
		env: []string{"NPM_PASSWORD=" + password, "DB_URL=" + password}}
	tokens, tokenOf := inTokens(t)
	kek := "--kek=file:" + filepath.Join(t.TempDir(), "kek")
	f.flags = append(tokens, kek)
	own, tls := tokenOf("team-0"), newSite(t, 7)
	write(t, f.dir, "secret.yaml", tls.secret(tls.cert))
	write(t, f.dir, "credentials.yaml", strings.ReplaceAll(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: db, namespace: shop}
spec:
  hosts: [db]
  http: [{headers: {request: {set: {authorization: "Bearer PASSWORD", x-api-key: PASSWORD}}}, route: [{destination: {host: db}}]}]
---
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: vm, namespace: shop}
spec: {metadata: {annotations: {db-password: PASSWORD}}, template: {serviceAccount: vm}}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: lua, namespace: shop}
spec:
  configPatches:
  - applyTo: CLUSTER
    match: {context: ANY}
    patch: {operation: MERGE, value: {metadata: {filter_metadata: {x: {access_token: PASSWORD}}}}}
`, "PASSWORD", password))
	ingest := start(t, "--roles=ingest", "--config-dir", f.dir, f.store, kek, "--leader-lease", lease)
	eventually(t, patience, ingest.leading)
	for range 3 {
		f.add()
	}
	settled(t, f.replicas()...)
	c := f.gather()
	c.grow(12, false, f.addresses)
	eventually(t, patience, func() error {
		out := outputOf(t, "ps", "--server", f.replicas()[0].http)
		if !strings.HasPrefix(string(out), "12 proxies: 12 in sync") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	code, body := askedFrom(t, f.replicas()[0], "/api/v1/report", own)
	if code != 403 || strings.Contains(body, "team-1") {
		t.Errorf("a tenant got %d %.200s", code, body)
	}
	hidden := map[string]string{"password": password, "token": own}
	for name, form := range tls.forms {
		hidden[name] = form
	}
	scratch := t.TempDir()

	whole := bugReport(t, filepath.Join(scratch, "whole.tgz"), hidden, f.replicas()[1].http+","+ingest.http)
	if len(whole.Index.Missing) != 0 || len(whole.Processes) != 4 || whole.Snapshot == nil {
		t.Errorf("%d processes, missing %+v", len(whole.Processes), whole.Index.Missing)
	}
	says(t, string(outputOf(t, "--snapshot", filepath.Join(scratch, "whole.tgz"), "ps")), "12 proxies: 12 in sync", "replica")

	stopped := f.replicas()[2]
	if err := stopped.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	etcd.Stop()
	began := time.Now()
	rest := bugReport(t, filepath.Join(scratch, "rest.tgz"), hidden, f.replicas()[0].http)
	within(t, 30*time.Second, time.Since(began), "a report without the replica that is stopped, and without etcd")
	name := fmt.Sprint("-", stopped.cmd.Process.Pid)
	if len(rest.Index.Missing) != 1 || !strings.HasSuffix(rest.Index.Missing[0].Name, name) || len(rest.Processes) != 2 {
		t.Errorf("%d processes, missing %+v", len(rest.Processes), rest.Index.Missing)
	}
	out := outputOf(t, "--snapshot", filepath.Join(scratch, "rest.tgz"), "ps")
	says(t, string(out), "warning: proxies may be missing because 1 replicas are not in it: "+name+" not in the report")
}

// bugReport makes a report, and checks that it hides what it has to hide.
func bugReport(t *testing.T, file string, hidden map[string]string, servers string) *report.Report {
	t.Helper()
	ctl(t, "bug-report", "--out", file, "--server", servers)
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	gz, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(gz)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range hidden {
		if at := bytes.Index(all, []byte(value)); at >= 0 {
			t.Errorf("%s has the %s: %q", file, name, all[max(0, at-200):at+10])
		}
	}
	for _, wanted := range []string{"goroutines.txt", "metrics-1.txt", "metrics-2.txt", "log.txt", "fleet.json", "records.bin", "held.bin",
		"navarchd starts", "goroutine profile", "pilot_xds"} {
		if !bytes.Contains(all, []byte(wanted)) {
			t.Errorf("%s has no %s", file, wanted)
		}
	}
	r, err := report.Read(bytes.NewReader(raw), report.Usual)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
