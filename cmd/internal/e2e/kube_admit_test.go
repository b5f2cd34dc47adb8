//go:build kube

package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"navarch.io/navarch/deploy/docs"
	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/deploy/testcluster/rights"
	"navarch.io/navarch/store/apiserver"
)

// webhookConfigurations returns those of a revision and of the default validator from deploy/docs/validation.md, at an
// address instead of a Service, because there is no network of Pods here.
func webhookConfigurations(t *testing.T, address string) string {
	t.Helper()
	all := docs.YAML(t, "validation.md", "# ")
	const service = "service: {name: istiod, namespace: istio-system, path: /validate}"
	if strings.Count(all, service) != 4 {
		t.Fatalf("the page has no four webhooks at %q:\n%s", service, all)
	}
	return strings.ReplaceAll(all, service, fmt.Sprintf("url: \"https://%s/validate\"", address))
}

// With the documented rights and configurations, the API server calls the webhook, which refuses a wrong VirtualService
// with the path of the field. Once it has refused a dry run, the API server also refuses objects while it is away. For
// 2,236 objects the API server and the webhook together accept and refuse as Istio does.
func TestKubeValidation(t *testing.T) {
	c := controlplane.Start(t, controlplane.Options{Istio: true, GatewayAPI: true})
	kubeconfig := rights.Documented(t, c)
	d := start(t, "--kubeconfig", kubeconfig, "--data-dir", t.TempDir())
	c.Kubectl(t, webhookConfigurations(t, d.https), "apply", "-f", "-")
	for _, name := range []string{"istio-validator-istio-system", "istiod-default-validator"} {
		eventually(t, patience, func() error {
			if err := d.metric(fmt.Sprintf("navarch_webhook_fails_open{configuration=%q} 0", name)); err != nil {
				page, _ := get(d.http, "/debug/problems")
				return fmt.Errorf("%w; %s", err, page)
			}
			if got := c.Kubectl(t, "", "get", "validatingwebhookconfiguration", name, "-o", "jsonpath={.webhooks[*].failurePolicy}"); got != "Fail Ignore" {
				return fmt.Errorf("failurePolicy %q", got)
			}
			return nil
		})
	}
	eventually(t, patience, d.ready)
	wrong := `{"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "wrong", "namespace": "val"}, "spec": {"hosts": ["a"], "gateways": ["b/c/d"], "http": [{"route": [{"destination": {"host": "b"}}]}]}}`
	if said := applied(c, wrong); !strings.Contains(said, `The VirtualService "wrong" is invalid: spec.gateways[0]: "b/c/d" is no gateway`) {
		t.Errorf("a wrong VirtualService: %q", said)
	}
	labelled := strings.Replace(wrong, `"namespace"`, `"labels": {"istio.io/rev": "default"}, "namespace"`, 1)
	for webhook, object := range map[string]string{"validation.istio.io": wrong, "rev.validation.istio.io": labelled} {
		err := create(t.Context(), apiOf(t, c), json.RawMessage(object))
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("admission webhook %q denied the request: configuration is invalid: spec.gateways[0]: ", webhook)) {
			t.Errorf("%s: %v", webhook, err)
		}
	}
	if said := applied(c, strings.Replace(wrong, `"name": "wrong"`, `"name": "other", "labels": {"istio.io/rev": "other"}`, 1)); !strings.Contains(said, "created") {
		t.Errorf("one of another revision: %q", said)
	}
	if said := applied(c, strings.Replace(wrong, `"gateways": ["b/c/d"], `, "", 1)); !strings.Contains(said, "created") || !strings.Contains(said, "Warning: spec.http[0].route[0].destination.host: no service has host") {
		t.Errorf("one whose destination is not known: %q", said)
	}
	t.Run("agrees", func(t *testing.T) { agrees(t, c) })
	warnsOfGatewayAPI(t, c)
	d.stop(t)
	if said := applied(c, strings.Replace(wrong, `"gateways": ["b/c/d"], `, "", 1)+"\n"); !strings.Contains(said, "unchanged") && !strings.Contains(said, "failed calling webhook") {
		t.Errorf("while the webhook is away: %q", said)
	}
	if said := applied(c, wrong); !strings.Contains(said, "failed calling webhook") {
		t.Errorf("a wrong VirtualService while the webhook is away: %q", said)
	}
	if said := applied(c, fmt.Sprintf(gatewayAPIGateway, "later", "istio")); !strings.HasSuffix(said, "/later created\n") {
		t.Errorf("a Gateway of the Gateway API while the webhook is away: %q", said)
	}
}

const (
	gatewayAPIGateway = `{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: %s, namespace: val}, spec: {gatewayClassName: %s, listeners: [{name: http, port: 80, protocol: HTTP}]}}`
	gatewayAPIRoute   = `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: %s, namespace: val}, spec: {parentRefs: [%s], rules: [{backendRefs: [{name: web, port: 80}]}]}}`
	gatewayAPIClass   = `{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: %s}, spec: {controllerName: %s}}`
)

// warnsOfGatewayAPI checks that objects which the mesh would have to implement are created with a warning, and others
// without one.
func warnsOfGatewayAPI(t *testing.T, c *controlplane.ControlPlane) {
	t.Helper()
	for object, warning := range map[string]string{
		fmt.Sprintf(gatewayAPIClass, "ours", "istio.io/gateway-controller"):           "spec.controllerName: the Gateway API is not served by this version",
		fmt.Sprintf(gatewayAPIClass, "others", "example.com/controller"):              "",
		fmt.Sprintf(gatewayAPIGateway, "ours", "istio"):                               "spec.gatewayClassName: the Gateway API is not served by this version: a Gateway of class istio",
		fmt.Sprintf(gatewayAPIGateway, "others", "others"):                            "",
		fmt.Sprintf(gatewayAPIRoute, "mesh", `{kind: Service, group: "", name: web}`): "spec.parentRefs[0]: the Gateway API is not served by this version: sidecars route nothing by this HTTPRoute",
		fmt.Sprintf(gatewayAPIRoute, "gateways", "{name: ours}"):                      "",
	} {
		said := applied(c, object)
		if !strings.HasSuffix(said, " created\n") || strings.Contains(said, "Warning: ") != (warning != "") || !strings.Contains(said, warning) {
			t.Errorf("%s: %q, want %q", object, said, warning)
		}
	}
}

// applied applies an object with kubectl, and returns all of its output.
func applied(c *controlplane.ControlPlane, object string) string {
	tools, err := controlplane.Tools()
	if err != nil {
		return err.Error()
	}
	cmd := exec.Command(filepath.Join(tools, "bin", "kubectl"), "--kubeconfig", c.Kubeconfig(), "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(object)
	out, _ := cmd.CombinedOutput() // how it ended is in what it prints
	return string(out)
}

// agrees checks that at most 0.5 % of the decisions differ from Istio's.
func agrees(t *testing.T, c *controlplane.ControlPlane) {
	raw, err := os.ReadFile("../../../store/admit/validate/testdata/validation.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Mutation, What string
		Object         json.RawMessage
		Schema         bool
		Semantic       *bool
	}
	if err := json.NewDecoder(unpacked).Decode(&all); err != nil {
		t.Fatal(err)
	}
	api := apiOf(t, c)
	var mu sync.Mutex
	var next, differ int
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= len(all) {
					return
				}
				one := all[i]
				err := create(t.Context(), api, one.Object)
				if no := new(apiserver.Status); err != nil && (!errors.As(err, &no) || no.Code == 500) {
					t.Errorf("object %d: %v", i, err)
				}
				if taken := one.Schema && one.Semantic != nil && *one.Semantic; taken != (err == nil) {
					mu.Lock()
					differ++
					mu.Unlock()
					t.Logf("object %d, %s %s: Istio's %v, ours %v", i, one.Mutation, one.What, taken, err)
				}
			}
		})
	}
	workers.Wait()
	if limit := len(all) * 5 / 1000; differ > limit {
		t.Errorf("%d of %d objects differ: at most %d may", differ, len(all), limit)
	}
	t.Logf("%d of %d objects differ", differ, len(all))
}

func apiOf(t *testing.T, c *controlplane.ControlPlane) *apiserver.Client {
	t.Helper()
	api, err := apiserver.Of(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// create tries to make an object, strictly, and leaves nothing.
func create(ctx context.Context, api *apiserver.Client, object json.RawMessage) error {
	var of struct {
		APIVersion string `json:"apiVersion"`
		Kind       string
		Metadata   struct{ Namespace string }
	}
	if err := json.Unmarshal(object, &of); err != nil {
		return err
	}
	plural := strings.ToLower(of.Kind) + "s"
	if stem, is := strings.CutSuffix(plural, "ys"); is {
		plural = stem + "ies"
	}
	return api.Do(ctx, "POST", "/apis/"+of.APIVersion+"/namespaces/"+of.Metadata.Namespace+"/"+plural+"?dryRun=All&fieldValidation=Strict", object, nil)
}
