package analyze

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
)

// Thousands of Pods with labels of their own, and hundreds of objects that name them, are counted within seconds.
// Several objects that multiply views together, none of which does so alone, are not reported.
func TestManyReadersOfViews(t *testing.T) {
	var text strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&text, "---\n{apiVersion: v1, kind: Pod, metadata: {name: web-%d, namespace: shop, labels: {app: web, index: \"%d\", security.istio.io/tlsMode: istio}}, "+
			"spec: {containers: [{name: istio-proxy, image: p}]}, status: {podIP: 10.0.%d.%d, phase: Running}}\n", i, i, i/250, i%250+1)
	}
	for i := range 150 {
		fmt.Fprintf(&text, "---\n{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: v%d, namespace: shop}, spec: {hosts: [v%d.example.com], "+
			"http: [{match: [{sourceLabels: {index: \"%d\"}}], redirect: {uri: /a}}, {redirect: {uri: /}}]}}\n", i, i, i)
	}
	in := input(t, []txtar.File{{Name: "both/cluster.yaml", Data: []byte(text.String())}}, "both")
	begin := time.Now()
	got := lines(Run(in, config), "NAV1015")
	if took := time.Since(begin); took > time.Minute || got != "" {
		t.Errorf("%v, %s", took, got)
	}
}
