package analyze

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"navarch.io/navarch/store/source/files"
)

// mesh writes the objects of files to a folder, a file for each namespace, and returns the folder: services in
// namespaces of 100, and half as many VirtualServices, some at gateways, with a workload, a DestinationRule and an
// AuthorizationPolicy for every tenth service.
func mesh(t testing.TB, services int) string {
	t.Helper()
	dir, texts := t.TempDir(), map[string]*strings.Builder{}
	put := func(group, version, kind, namespace, name, body string) {
		if texts[namespace] == nil {
			texts[namespace] = &strings.Builder{}
		}
		fmt.Fprintf(texts[namespace], "---\napiVersion: %s\nkind: %s\nmetadata: {name: %s, namespace: %s}\n%s\n",
			strings.TrimPrefix(group+"/"+version, "/"), kind, name, namespace, body)
	}
	for i := range services {
		namespace, name := fmt.Sprintf("n%d", i/100), fmt.Sprintf("s%d", i)
		put("", "v1", "Service", namespace, name, fmt.Sprintf(
			"spec: {selector: {app: %s}, ports: [{name: http, port: 80}, {name: grpc, port: 81}]}", name))
		if i%2 == 0 {
			gateways := ""
			if i%20 == 0 {
				gateways = fmt.Sprintf(", gateways: [edge/g%d]", i%200)
			}
			put("networking.istio.io", "v1", "VirtualService", namespace, name, fmt.Sprintf("spec: {hosts: [%s.example.com]%s, http: ["+
				"{match: [{uri: {prefix: /a}}], route: [{destination: {host: %s, port: {number: 80}}}]}, {route: ["+
				"{destination: {host: %s, port: {number: 81}}, weight: 90}, {destination: {host: s%d, port: {number: 81}}, weight: 10}]}]}",
				name, gateways, name, name, i/100*100))
		}
		if i%10 == 0 {
			put("apps", "v1", "Deployment", namespace, name, fmt.Sprintf(
				"spec: {template: {metadata: {labels: {app: %s}}, spec: {containers: [{name: app, image: a}]}}}", name))
			put("networking.istio.io", "v1", "DestinationRule", namespace, name, fmt.Sprintf(
				"spec: {host: %s, subsets: [{name: v1, labels: {version: v1}}]}", name))
			put("security.istio.io", "v1", "AuthorizationPolicy", namespace, name, fmt.Sprintf(
				"spec: {selector: {matchLabels: {app: %s}}, rules: [{}]}", name))
		}
	}
	for i := range 10 {
		put("networking.istio.io", "v1", "Gateway", "edge", fmt.Sprintf("g%d", 20*i), fmt.Sprintf(
			"spec: {selector: {app: edge}, servers: [{port: {number: %d, name: http, protocol: HTTP}, hosts: ['*']}]}", 8000+i))
	}
	for namespace, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, namespace+".yaml"), []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// readMesh reads the files of a folder as navarchctl analyze does.
func readMesh(t testing.TB, dir string) (in Input) {
	t.Helper()
	var err error
	if in.Events, in.Problems, err = files.ReadPaths([]string{dir}, nil, files.Once{}); err != nil {
		t.Fatal(err)
	}
	return in
}

// 5,000 VirtualServices and 10,000 Services, beside others, are read from files and analyzed. The limit is a second.
func BenchmarkAnalyzeFiles(b *testing.B) {
	dir := mesh(b, 10_000)
	begin := cpu(b)
	for b.Loop() {
		if len(Run(readMesh(b, dir), config)) == 0 {
			b.Fatal("nothing is found")
		}
	}
	b.ReportMetric((cpu(b)-begin).Seconds()/float64(b.N), "CPU-s/op")
}

// cpu returns the CPU time of this process. Unlike the time on the clock, it hardly depends on other processes.
func cpu(t testing.TB) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// The same without the reading of files.
func BenchmarkAnalyze(b *testing.B) {
	in := readMesh(b, mesh(b, 10_000))
	for b.Loop() {
		if len(Run(in, config)) == 0 {
			b.Fatal("nothing is found")
		}
	}
}

// Twice the objects are twice the work, in allocations.
func TestWorkGrowsWithTheObjects(t *testing.T) {
	work := func(services int) float64 {
		in := readMesh(t, mesh(t, services))
		return testing.AllocsPerRun(1, func() { Run(in, config) })
	}
	if one, two := work(500), work(1000); two > 2.3*one {
		t.Errorf("%.0f allocations for 500 services, %.0f for 1,000", one, two)
	}
}
