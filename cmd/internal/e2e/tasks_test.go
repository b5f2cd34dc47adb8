package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"navarch.io/navarch/store/loopback"
)

// taskMesh has a client, and reviews in two versions, each with a proxy of its own; NET is the net of their addresses.
// Listeners are bound, since nothing is redirected.
const taskMesh = `
apiVersion: v1
kind: Service
metadata: {name: reviews, namespace: shop}
spec: {clusterIP: 10.96.0.20, selector: {app: reviews}, ports: [{name: http, port: 8000, targetPort: 8080}, {name: tcp, port: 9000, targetPort: 9090}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: reviews-1, namespace: shop, labels: {kubernetes.io/service-name: reviews}}
addressType: IPv4
ports: [{name: http, port: 8080}, {name: tcp, port: 9090}]
endpoints:
- {addresses: [NET.2], conditions: {ready: true}, targetRef: {kind: Pod, name: reviews-v1-0, namespace: shop}}
- {addresses: [NET.3], conditions: {ready: true}, targetRef: {kind: Pod, name: reviews-v2-0, namespace: shop}}
---
apiVersion: v1
kind: Pod
metadata: {name: client-0, namespace: shop, labels: {app: client}}
spec: {serviceAccountName: client}
status: {phase: Running, podIP: NET.1}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: client, namespace: shop}
spec:
  workloadSelector: {labels: {app: client}}
  egress:
  - {port: {number: 8000, protocol: HTTP, name: http}, bind: NET.1, captureMode: NONE, hosts: ["./*"]}
  - {port: {number: 8001, protocol: HTTP, name: http-ext}, bind: NET.1, captureMode: NONE, hosts: ["./*"]}
  - {port: {number: 8002, protocol: TLS, name: tls-ext}, bind: NET.1, captureMode: NONE, hosts: ["./*"]}
  - {port: {number: 9000, protocol: TCP, name: tcp}, bind: NET.1, captureMode: NONE, hosts: ["./*"]}
`

// taskServer is the configuration of one version of reviews.
const taskServer = `---
apiVersion: v1
kind: Pod
metadata: {name: reviews-VERSION-0, namespace: shop, labels: {app: reviews, version: VERSION, security.istio.io/tlsMode: istio}}
spec: {serviceAccountName: reviews, containers: [{name: app, image: app}]}
status: {phase: Running, podIP: ADDRESS, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: reviews-VERSION, namespace: shop}
spec:
  workloadSelector: {labels: {app: reviews, version: VERSION}}
  ingress:
  - {port: {number: 8080, protocol: HTTP, name: http}, bind: ADDRESS, captureMode: NONE, defaultEndpoint: "0.0.0.0:9080"}
  - {port: {number: 9090, protocol: TCP, name: tcp}, bind: ADDRESS, captureMode: NONE, defaultEndpoint: "0.0.0.0:9190"}
  egress: [{port: {number: 8001, protocol: HTTP, name: http}, bind: ADDRESS, captureMode: NONE, hosts: ["./*"]}]
`

// Tasks of Istio's documentation, each as YAML and our own calls: files of testdata/tasks, whose comments name the
// page. The calls go through real Envoys with real agents. The expectations are those of Istio's page, so that the test
// does not depend on our own judgement.
func TestDocumentedTasks(t *testing.T) {
	parallel(t)
	at := loopback.NetFor(t)
	s := &taskStage{t: t, at: at, dir: t.TempDir(), proxies: map[string]proxy{}, first: map[string]map[string]string{}}
	s.serve()
	mesh := taskMesh + taskGateways + readers("edge")
	for version, address := range taskVersions {
		mesh += strings.NewReplacer("VERSION", version, "ADDRESS", "NET"+address).Replace(taskServer)
	}
	write(t, s.dir, "mesh.yaml", strings.ReplaceAll(mesh, "NET", at))
	data := t.TempDir()
	d := start(t, "--config-dir", s.dir, "--data-dir", data)
	eventually(t, patience, d.ready)
	roots := filepath.Join(data, "root-cert.pem")
	s.gateway(t, d, data, roots)
	s.gateways(t, d, data, roots)
	s.proxies["client"] = runAgentWith(t, d, data, roots, "client", at+".1", []string{`ISTIO_METAJSON_LABELS={"app":"client","generation":"1","istio-locality":"region1.zone1"}`,
		"ISTIO_META_ENABLE_SELF_DISCOVERY=true", "ISTIO_META_WORKLOAD_NAME=client",
		`PROXY_CONFIG={"proxyHeaders":{"preserveHttp1HeaderCase":true,"attemptCount":{"disabled":true},"server":{"value":"client-proxy"}}}`})
	for version, address := range taskVersions {
		s.proxies[version] = runAgentProgram(t, d, binary(t, "navarch-agent"), token(t, data, "shop", "reviews"), roots, "reviews-"+version, at+address,
			[]string{"SERVICE_ACCOUNT=reviews", fmt.Sprintf(`ISTIO_METAJSON_LABELS={"app":"reviews","version":%q}`, version)})
	}
	eventually(t, patience, func() error { return s.play("GET / x2 -> 200 v1=1 v2=1") })
	files, err := filepath.Glob("testdata/tasks/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("tasks: %v %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s.task(t, txtar.Parse(raw))
		})
	}
}

// withMesh adds a mesh configuration with Istio's defaults to a task without one: otherwise that of the previous task
// would stay in effect.
func withMesh(config string) string {
	const name = "metadata: {name: istio, namespace: istio-system}"
	if strings.Contains(config, name) {
		return config
	}
	return config + "\n---\napiVersion: v1\nkind: ConfigMap\n" + name + "\ndata: {mesh: '{}'}\n"
}

// task applies the file config.yaml, and runs the lines of the file calls, each repeatedly until it succeeds, because
// the change is still on its way. A line "drop TEXT" removes the lines with the text from the configuration.
func (s *taskStage) task(t *testing.T, a *txtar.Archive) {
	t.Helper()
	parts := map[string]string{}
	for _, f := range a.Files {
		parts[f.Name] = string(f.Data)
	}
	if parts["config.yaml"] == "" || parts["calls"] == "" {
		t.Fatal("want the files config.yaml and calls")
	}
	write(t, s.dir, "task.yaml", s.fill(withMesh(parts["config.yaml"])))
	before := ""
	for line := range strings.Lines(parts["calls"]) {
		line = strings.TrimSpace(line)
		if text, is := strings.CutPrefix(line, "drop "); is {
			kept := slices.DeleteFunc(slices.Collect(strings.Lines(parts["config.yaml"])), func(line string) bool { return strings.Contains(line, text) })
			parts["config.yaml"] = strings.Join(kept, "")
			write(t, s.dir, "task.yaml", s.fill(withMesh(parts["config.yaml"])))
			continue
		}
		counted := slices.Contains(counts, strings.Fields(line)[0])
		eventually(t, patience, func() error {
			if counted { // of what the requests before do
				if err := s.play(before); err != nil {
					return fmt.Errorf("%s: %w", before, err)
				}
			}
			if err := s.play(line); err != nil {
				return fmt.Errorf("%s: %w", line, err)
			}
			return nil
		})
		if !counted {
			before = line
		}
	}
	if err := os.Remove(filepath.Join(s.dir, "task.yaml")); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() error { return s.play("GET / x2 -> 200 v1=1 v2=1") })
}
