package analyze

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/deploy/docs"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
	"navarch.io/navarch/store/source/files"
)

var update = flag.Bool("update", false, "rewrite what the inputs in testdata are to find")

// now is the time of the analyses.
var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

var config = Config{SystemNamespace: "istio-system", Now: now, Normal: normal.Options{SystemNamespace: "istio-system"}}

// secret returns a Secret edge/cert with a certificate that ends in some days.
func secret(t testing.TB, days int) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"a.example.com"}, NotBefore: now.AddDate(0, 0, -1),
		NotAfter: now.AddDate(0, 0, days)}
	cert, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: cert, namespace: edge}, type: kubernetes.io/tls, data: {tls.crt: %s, tls.key: %s}}\n",
		text("CERTIFICATE", cert), text("PRIVATE KEY", raw))
}

// input reads the sections of an archive whose names begin with one of the given words. Sections that end with
// cluster.yaml are objects of a cluster.
func input(t testing.TB, sections []txtar.File, words ...string) Input {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	var reported []Reported
	var patches []inspect.Patch
	for _, s := range sections {
		word, rest, nested := strings.Cut(strings.TrimSuffix(s.Name, ".yaml"), "/")
		if !slices.Contains(words, word) {
			continue
		}
		name := filepath.Join("files", word+".yaml")
		switch {
		case rest == "reported.json":
			if err := json.Unmarshal(s.Data, &reported); err != nil {
				t.Fatal(err)
			}
			continue
		case rest == "patches.json":
			if err := json.Unmarshal(s.Data, &patches); err != nil {
				t.Fatal(err)
			}
			continue
		case rest == "cluster":
			name = filepath.Join("cluster", word+".yaml")
		case nested:
			name = filepath.Join("files", rest+".yaml")
		}
		text := string(s.Data)
		for _, days := range []int{20, 60} {
			text = strings.ReplaceAll(text, fmt.Sprintf("@CERT%d@", days), secret(t, days))
			text = strings.ReplaceAll(text, fmt.Sprintf("@ROOT%d@", days), root(t, days))
			for word, more := range map[string]string{"MANAGED": "annotations: {cert-manager.io/certificate-name: cert}",
				"WRITTEN": `managedFields: [{manager: kubectl, operation: Update, time: "2025-11-01T00:00:00Z"}]`} {
				text = strings.ReplaceAll(text, fmt.Sprintf("@%s%d@", word, days), strings.Replace(secret(t, days), "namespace: edge",
					"namespace: edge, "+more, 1))
			}
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in := read(t)
	in.Reported, in.Patches = reported, patches
	return in
}

// root returns a certificate that ends in some days, as a quoted text in PEM.
func root(t testing.TB, days int) string {
	t.Helper()
	of := struct {
		Data map[string][]byte `json:"data"`
	}{}
	if err := yaml.Unmarshal([]byte(secret(t, days)), &of); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%q", of.Data["tls.crt"])
}

// read reads the folders files and cluster, as far as they are there.
func read(t testing.TB) Input {
	t.Helper()
	out := Input{Cluster: map[string]bool{}}
	for _, dir := range []string{"cluster", "files"} {
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		events, problems, err := files.ReadPaths([]string{dir}, nil, files.Once{Skipped: func(location string) { t.Errorf("%s is no object", location) }})
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range events {
			if dir == "cluster" && e.Object != nil {
				one := *e.Object
				one.Location, events[i].Object, out.Cluster[e.ID.Kind] = "", &one, true
			}
		}
		out.Events, out.Problems = append(out.Events, events...), append(out.Problems, problems...)
	}
	return out
}

// lines returns the findings with a code, as text.
func lines(all []Finding, code string) string {
	NewLines(os.ReadFile).Fill(all)
	var out strings.Builder
	for _, f := range all {
		if code == "" || f.Code == code {
			fmt.Fprintln(&out, f)
		}
	}
	return out.String()
}

// Each code has an archive with an input that fires it, the findings, and a near miss that does not fire it.
func TestCodes(t *testing.T) {
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			continue // of fuzzing
		}
		have = append(have, strings.TrimSuffix(e.Name(), ".txtar"))
	}
	var want []string
	for _, code := range Codes() {
		want = append(want, string(code))
	}
	if !slices.Equal(have, want) {
		t.Fatalf("testdata has %v, want an archive for each of %v", have, want)
	}
	for _, code := range want {
		t.Run(code, func(t *testing.T) { ofCode(t, filepath.Join(dir, code+".txtar"), code) })
	}
}

// ofCode checks the archive of one code.
func ofCode(t *testing.T, path, code string) {
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	config := config
	if code == string(problem.ProxyOverBudget) {
		config.ProxyBytes = 10_000
	}
	got := lines(Run(input(t, archive.Files, "both", "fires"), config), code)
	if got == "" {
		t.Errorf("does not fire: %s", lines(Run(read(t), config), ""))
	}
	at := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == "want" })
	if at < 0 {
		archive.Files, at = append(archive.Files, txtar.File{Name: "want"}), len(archive.Files)
	}
	if archive.Files[at].Data = append([]byte{}, archive.Files[at].Data...); string(archive.Files[at].Data) != got {
		if !*update {
			t.Errorf("found\n%swant\n%s", got, archive.Files[at].Data)
		} else {
			archive.Files[at].Data = []byte(got)
			if err := os.WriteFile(path, txtar.Format(archive), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	near := Run(input(t, archive.Files, "both", "near"), config)
	if found := lines(near, code); found != "" {
		t.Errorf("the near miss fires: %s", found)
	}
	for _, f := range near {
		if f.Code == string(problem.SchemaValidationError) || f.Code == string(problem.Unreadable) {
			t.Errorf("the near miss is not valid: %v", f)
		}
	}
}

// The demo's files have neither errors nor warnings.
func TestDemoHasNoFindings(t *testing.T) {
	events, problems, err := files.ReadPaths([]string{"../../../deploy/demo/shop"}, nil, files.Once{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range Run(Input{Events: events, Problems: problems}, config) {
		if AtLeast(f.Severity, problem.Warning) {
			t.Error(f)
		}
	}
}

// An application as it stands in a repository of manifests, without addresses, namespaces, status, and the router of
// its Gateway. Nothing is found.
func TestManifests(t *testing.T) {
	const text = `
{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: main}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: db}, spec: {clusterIP: None, selector: {app: db}, ports: [{name: tcp, port: 5432}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: mail}, spec: {type: ExternalName, externalName: mail.example.com, ports: [{name: smtp, port: 25, appProtocol: tcp}]}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web, version: v1}},
  spec: {serviceAccountName: web, containers: [{name: app, image: web, ports: [{name: main, containerPort: 8080}]}]}}}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: web}}
---
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}, spec: {serviceName: db, selector: {matchLabels: {app: db}}, template: {metadata: {labels: {app: db}},
  spec: {containers: [{name: db, image: db}]}}}}
---
{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: edge}, spec: {selector: {istio: ingressgateway}, servers: [{port: {number: 443, name: https, protocol: HTTPS},
  hosts: [www.example.com], tls: {mode: SIMPLE, credentialName: www}}]}}
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: web}, spec: {hosts: [www.example.com, web], gateways: [edge, mesh],
  http: [{route: [{destination: {host: web, subset: v1, port: {number: 80}}}]}], tcp: [{route: [{destination: {host: db}}]}]}}
---
{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: web}, spec: {host: web, subsets: [{name: v1, labels: {version: v1}}]}}
---
{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: web}, spec: {selector: {matchLabels: {app: web}}, rules: [{to: [{operation: {methods: [GET]}}]}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: far, namespace: other}, spec: {selector: {app: far}, ports: [{name: http, port: 80}]}}
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: far, namespace: other}, spec: {hosts: [far], http: [{route: [{destination: {host: far}}]}]}}
---
{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: far, namespace: other}, spec: {selector: {matchLabels: {app: far}}, rules: [{}]}}
---
{apiVersion: batch/v1, kind: CronJob, metadata: {name: clean}, spec: {schedule: "@daily", jobTemplate: {spec: {template: {metadata: {labels: {app: clean}}, spec: {containers: [{name: clean, image: c}]}}}}}}
`
	events, problems, err := files.ReadPaths([]string{files.Stdin}, strings.NewReader(text), files.Once{Namespace: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range Run(Input{Events: events, Problems: problems}, config) {
		t.Error(f)
	}
}

// A finding that only moves is not new, and an object of a file replaces the cluster's.
func TestNew(t *testing.T) {
	vs := func(name, http string) string {
		return "{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: " + name + ", namespace: shop}, spec: {hosts: [" + name + ".example.com], http: [" + http + "]}}\n"
	}
	const missing, match = "{route: [{destination: {host: nowhere}}]}", "{match: [{uri: {exact: /a}}], redirect: {uri: /b}}, "
	cluster := input(t, []txtar.File{{Name: "both/cluster.yaml", Data: []byte(vs("old", missing) + "---\n" + vs("mended", missing))}}, "both")
	then := input(t, []txtar.File{{Name: "both.yaml", Data: []byte(vs("old", match+missing) + "---\n" + vs("mended",
		"{redirect: {uri: /b}}") + "---\n" + vs("new", missing))}}, "both")
	before := Run(cluster, config)
	all := Run(Over(cluster, then), config)
	if got := New(before, all); len(before) != 2 || len(all) != 2 || len(got) != 1 || got[0].Object != "VirtualService shop/new" {
		t.Errorf("before %v, after %v, new %v", before, all, got)
	}
	if got := Of(all, "other"); len(got) != 0 {
		t.Errorf("of another namespace: %v", got)
	}
}

// Checks that need a kind which was not read are left out.
func TestUnreadKinds(t *testing.T) {
	in := input(t, []txtar.File{{Name: "both/cluster.yaml",
		Data: []byte(`{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop, labels: {sidecar.istio.io/inject: "true"}}, spec: {containers: [{name: app}]}, status: {podIP: 10.0.0.1}}`)}}, "both")
	if got := Run(in, config); len(got) != 1 || got[0].Code != string(problem.PodMissingProxy) {
		t.Fatalf("%v", got)
	}
	in.Unread = map[string]string{"Namespace": "forbidden"}
	if got := Run(in, config); len(got) != 0 {
		t.Errorf("namespaces are not known: %v", got)
	}
}

// The order and the number of findings do not depend on the order of the objects.
func TestOrder(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/IST0139.txtar")
	if err != nil {
		t.Fatal(err)
	}
	in := input(t, archive.Files, "both", "fires", "near")
	want := Run(in, config)
	slices.Reverse(in.Events)
	if got := Run(in, config); !slices.Equal(got, want) || !slices.IsSortedFunc(got, Compare) {
		t.Errorf("%v, then %v", want, got)
	}
	if id := (object.ID{}); id.String() != "" {
		t.Errorf("an object without a name is %q", id)
	}
}

// The table of reporters is that of the pipeline. In the input that fires a code of the leader, the pipeline finds the
// code if objects alone show it.
func TestReporters(t *testing.T) {
	for _, code := range Codes() {
		archive, err := txtar.ParseFile("testdata/" + string(code) + ".txtar")
		if err != nil {
			t.Fatal(err)
		}
		t.Run(string(code), func(t *testing.T) {
			in := input(t, archive.Files, "both", "fires")
			_, problems := ingest.Records(slices.Concat(in.Events, index(in, config).made), config.Normal)
			found := slices.ContainsFunc(problems, func(p object.Problem) bool { return cmp.Or(p.Analyzer, schemaCode(p)) == code })
			if byObjects := ReporterOf(code) == Leader && !slices.Contains(fromControlPlane, code); found != byObjects {
				t.Errorf("reported by %s; the pipeline finds it: %v", ReporterOf(code), found)
			}
		})
	}
}

// The page has a row for every code, with its reporter.
func TestPageHasEveryCode(t *testing.T) {
	page, err := docs.Pages.ReadFile("analysis.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## The codes")
	table, _, _ = strings.Cut(table, "## ")
	for _, code := range Codes() {
		at := strings.Index(table, string(code))
		if at < 0 {
			t.Errorf("deploy/docs/analysis.md has no row for %s", code)
			continue
		}
		mark := strings.TrimSpace(strings.Split(table[at:], "|")[1])
		want := map[Reporter]string{Leader: "L", Replicas: "R", Analyze: ""}[ReporterOf(code)]
		if mark != want && !(want != "" && mark == "LR") {
			t.Errorf("deploy/docs/analysis.md marks %s as %q, want %q", code, mark, want)
		}
	}
}
