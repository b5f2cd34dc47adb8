//go:build kube

package gatewaychart

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/deploy/chart"
	"navarch.io/navarch/deploy/chart/files/injection"
	"navarch.io/navarch/store/admit/inject"
	"navarch.io/navarch/store/model"
)

// helm runs Helm without a cluster.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	h, err := chart.NewHelm(t.TempDir(), filepath.Join(t.TempDir(), "none"))
	if err != nil {
		t.Fatal(err)
	}
	return h.Run(t.Context(), append([]string{"template", "istio-ingressgateway", ".", "-n", "edge"}, args...)...)
}

// objects are the rendered objects of a file of values, by kind.
func objects(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := helm(t, "-f", filepath.Join("ci", file+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, document := range chart.Documents(text) {
		var of unstructured.Unstructured
		if err := yaml.UnmarshalStrict([]byte(document), &of.Object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if _, twice := all[of.GetKind()]; twice || of.GetNamespace() != "edge" {
			t.Errorf("%s of namespace %s, twice: %v", of.GetKind(), of.GetNamespace(), twice)
		}
		all[of.GetKind()] = document
	}
	return all
}

// decode reads a document strictly into its type.
func decode[T any](t *testing.T, document string) *T {
	t.Helper()
	of := new(T)
	if err := yaml.UnmarshalStrict([]byte(document), of); err != nil || document == "" {
		t.Fatalf("%T: %v in\n%s", of, err, document)
	}
	return of
}

// same compares values as YAML, so that a case can name a subtree.
func same(t *testing.T, what string, got any, want string) {
	t.Helper()
	text, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := yaml.UnmarshalStrict([]byte(want), &tree); err != nil {
		t.Fatal(err)
	}
	canonical, err := yaml.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != string(canonical) {
		t.Errorf("%s is\n%s, want\n%s", what, text, canonical)
	}
}

// Without values the chart makes what Istio's chart makes: the Pods are for the injection template gateway, and may
// bind ports below 1024 without rights.
func TestKubeGatewayChartByDefault(t *testing.T) {
	t.Parallel()
	all := objects(t, "default")
	if len(all) != 6 {
		t.Errorf("%d objects", len(all))
	}
	d := decode[appsv1.Deployment](t, all["Deployment"])
	pod := d.Spec.Template
	same(t, "selector", d.Spec.Selector.MatchLabels, `{app: istio-ingressgateway, istio: ingressgateway}`)
	same(t, "labels of Pods", pod.Labels, `{app: istio-ingressgateway, istio: ingressgateway, sidecar.istio.io/inject: "true",
  app.kubernetes.io/name: istio-ingressgateway, app.kubernetes.io/instance: istio-ingressgateway, app.kubernetes.io/part-of: istio}`)
	same(t, "annotations of Pods", pod.Annotations, `{inject.istio.io/templates: gateway, sidecar.istio.io/inject: "true",
  prometheus.io/port: "15020", prometheus.io/scrape: "true", prometheus.io/path: /stats/prometheus}`)
	same(t, "security of Pods", pod.Spec.SecurityContext, `{sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: "0"}]}`)
	same(t, "containers", pod.Spec.Containers, `[{name: istio-proxy, image: auto, ports: [{name: http-envoy-prom, containerPort: 15090, protocol: TCP}], resources: {requests: {cpu: 100m, memory: 128Mi}, limits: {cpu: "2", memory: 1Gi}},
  securityContext: {capabilities: {drop: [ALL]}, allowPrivilegeEscalation: false, privileged: false, readOnlyRootFilesystem: true, runAsNonRoot: true, runAsUser: 1337, runAsGroup: 1337}}]`)
	if d.Spec.Replicas != nil || pod.Spec.ServiceAccountName != "istio-ingressgateway" || *pod.Spec.TerminationGracePeriodSeconds != 30 {
		t.Errorf("%v replicas, account %s", d.Spec.Replicas, pod.Spec.ServiceAccountName)
	}
	s := decode[corev1.Service](t, all["Service"])
	same(t, "Service", s.Spec, `{type: LoadBalancer, selector: {app: istio-ingressgateway, istio: ingressgateway}, ports: [
  {name: status-port, port: 15021, protocol: TCP, targetPort: 15021}, {name: http2, port: 80, protocol: TCP, targetPort: 80},
  {name: https, port: 443, protocol: TCP, targetPort: 443}]}`)
	same(t, "rules", decode[rbacv1.Role](t, all["Role"]).Rules, `[{apiGroups: [""], resources: [secrets], verbs: [get, watch, list]}]`)
	binding := decode[rbacv1.RoleBinding](t, all["RoleBinding"])
	same(t, "binding", []any{binding.RoleRef, binding.Subjects}, `[
  {apiGroup: rbac.authorization.k8s.io, kind: Role, name: istio-ingressgateway},
  [{kind: ServiceAccount, name: istio-ingressgateway, namespace: edge}]]`)
	scaler := decode[autoscalingv2.HorizontalPodAutoscaler](t, all["HorizontalPodAutoscaler"])
	same(t, "autoscaler", scaler.Spec, `{scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: istio-ingressgateway}, minReplicas: 1, maxReplicas: 5,
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]}`)
	decode[corev1.ServiceAccount](t, all["ServiceAccount"])
}

// Every value of Istio's chart arrives where Istio's chart puts it.
func TestKubeGatewayChartTakesIstiosValues(t *testing.T) {
	t.Parallel()
	all := objects(t, "istio")
	d := decode[appsv1.Deployment](t, all["Deployment"])
	pod := d.Spec.Template.Spec
	for _, c := range []struct {
		what string
		got  any
		want string
	}{
		{"name and annotations", []any{d.Name, d.Annotations}, `[istio-edge, {example.com/owner: web}]`},
		{"strategy", d.Spec.Strategy, `{rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}`},
		{"minReadySeconds", d.Spec.MinReadySeconds, `5`},
		{"selector", d.Spec.Selector.MatchLabels, `{app: edge, istio: ingressgateway}`},
		{"label team", []any{d.Labels["team"], d.Spec.Template.Labels["team"], d.Spec.Template.Labels["istio.io/rev"]}, `[web, web, canary]`},
		{"annotations of Pods", d.Spec.Template.Annotations["proxy.istio.io/config"], `"terminationDrainDuration: 60s"`},
		{"account", pod.ServiceAccountName, `edge-account`}, {"grace", pod.TerminationGracePeriodSeconds, `120`},
		{"security", []any{pod.SecurityContext, pod.Containers[0].SecurityContext}, `[{runAsNonRoot: true}, {runAsUser: 1500}]`},
		{"places", []any{pod.NodeSelector, pod.Tolerations, pod.PriorityClassName}, `[{pool: edge}, [{key: edge, operator: Exists}], system-cluster-critical]`},
		{"spread", pod.TopologySpreadConstraints[0].TopologyKey, `kubernetes.io/hostname`},
		{"affinity", pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions[0].Key, `edge`},
		{"pull secrets", pod.ImagePullSecrets, `[{name: registry}]`}, {"pull policy", pod.Containers[0].ImagePullPolicy, `Always`},
		{"volumes", []any{pod.Volumes[0].Secret.SecretName, pod.Containers[0].VolumeMounts}, `[edge-certificates, [{name: certificates, mountPath: /etc/certificates, readOnly: true}]]`},
		{"containers", []string{pod.InitContainers[0].Name, pod.Containers[1].Name}, `[first, beside]`},
		{"env", pod.Containers[0].Env, `[{name: EXIT_ON_ZERO_ACTIVE_CONNECTIONS, value: "true"}, {name: LARGE, value: "3000000"}, {name: PART, value: "0.5"}, {name: TERMINATION_DRAIN_DURATION_SECONDS, value: "100"}, {name: ZONE, valueFrom: {fieldRef: {fieldPath: "metadata.labels['zone']"}}}]`},
		{"resources", pod.Containers[0].Resources, `{requests: {cpu: 200m, memory: 256Mi}, limits: {memory: 512Mi}}`},
		{"probe", pod.Containers[0].ReadinessProbe, `{httpGet: {path: /healthz/ready, port: 15021}, failureThreshold: 4}`},
		{"lifecycle", pod.Containers[0].Lifecycle, `{preStop: {exec: {command: [sleep, "5"]}}}`},
		{"Service", decode[corev1.Service](t, all["Service"]).Spec, `{type: LoadBalancer, selector: {app: edge, istio: ingressgateway, example.com/pool: blue}, ports: [{name: status-port, port: 15021, protocol: TCP, targetPort: 15021}, {name: https, port: 443, protocol: TCP, targetPort: 8443, nodePort: 30443}],
  loadBalancerIP: 192.0.2.7, loadBalancerClass: example.com/lb, loadBalancerSourceRanges: [192.0.2.0/24], allocateLoadBalancerNodePorts: false, externalTrafficPolicy: Local, externalIPs: [192.0.2.9], ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv4, IPv6]}`},
		{"annotations of the Service", decode[corev1.Service](t, all["Service"]).Annotations, `{example.com/balancer: internal, example.com/owner: web}`},
		{"ServiceAccount", []any{decode[corev1.ServiceAccount](t, all["ServiceAccount"]).Name, decode[corev1.ServiceAccount](t, all["ServiceAccount"]).Annotations}, `[edge-account, {example.com/owner: web, example.com/role: "arn:edge"}]`},
		{"autoscaler", decode[autoscalingv2.HorizontalPodAutoscaler](t, all["HorizontalPodAutoscaler"]).Spec, `{scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: istio-edge}, minReplicas: 2, maxReplicas: 6, behavior: {scaleDown: {stabilizationWindowSeconds: 60}},
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 70}}}, {type: Resource, resource: {name: memory, target: {type: Utilization, averageUtilization: 90}}}]}`},
		{"budget", decode[policyv1.PodDisruptionBudget](t, all["PodDisruptionBudget"]).Spec, `{minAvailable: 1, selector: {matchLabels: {app: edge, istio: ingressgateway}}, unhealthyPodEvictionPolicy: AlwaysAllow}`},
		{"NetworkPolicy", decode[networkingv1.NetworkPolicy](t, all["NetworkPolicy"]).Spec, `{podSelector: {matchLabels: {app: edge, istio: ingressgateway}}, policyTypes: [Ingress, Egress], egress: [{}],
  ingress: [{ports: [{protocol: TCP, port: 15021}, {protocol: TCP, port: 15020}, {protocol: TCP, port: 15090}]}, {ports: [{protocol: TCP, port: 15021}, {protocol: TCP, port: 8443}]}]}`},
	} {
		same(t, c.what, c.got, c.want)
	}
}

// Other shapes: a DaemonSet, a gateway between networks, and one without a Service.
func TestKubeGatewayChartShapes(t *testing.T) {
	t.Parallel()
	all := objects(t, "daemonset")
	d := decode[appsv1.DaemonSet](t, all["DaemonSet"])
	same(t, "update strategy", d.Spec.UpdateStrategy, `{rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}`)
	same(t, "selector", d.Spec.Selector.MatchLabels, `{app: "", istio: ingressgateway}`)
	pod := d.Spec.Template.Spec
	if c := pod.Containers[0].SecurityContext; c.RunAsUser != nil || c.RunAsGroup != nil {
		t.Errorf("user %v, group %v", c.RunAsUser, c.RunAsGroup)
	}
	if pod.ServiceAccountName != "default" || len(all) != 2 {
		t.Errorf("account %s, %d objects", pod.ServiceAccountName, len(all))
	}
	if s := decode[corev1.Service](t, all["Service"]).Spec; s.LoadBalancerIP != "" || s.Type != corev1.ServiceTypeNodePort {
		t.Errorf("%+v", s)
	}
	all = objects(t, "network")
	service := decode[corev1.Service](t, all["Service"])
	same(t, "ports", service.Spec.Ports, `[{name: status-port, port: 15021, targetPort: 15021, protocol: TCP},
  {name: tls, port: 16443, targetPort: 15443, protocol: TCP}, {name: tls-istiod, port: 15012, targetPort: 15012, protocol: TCP},
  {name: tls-webhook, port: 15017, targetPort: 15017, protocol: TCP}]`)
	deployment := decode[appsv1.Deployment](t, all["Deployment"])
	same(t, "env", deployment.Spec.Template.Spec.Containers[0].Env, `[{name: ISTIO_META_REQUESTED_NETWORK_VIEW, value: network1}]`)
	const network = "topology.istio.io/network"
	if of := deployment.Spec.Template.Labels[network]; of != "network1" || service.Labels[network] != "network1" {
		t.Errorf("network %q", of)
	}
	if n := deployment.Spec.Replicas; n == nil || *n != 0 || all["HorizontalPodAutoscaler"] != "" {
		t.Errorf("%v replicas", n)
	}
	policy := decode[networkingv1.NetworkPolicy](t, all["NetworkPolicy"])
	same(t, "ports of the NetworkPolicy", policy.Spec.Ingress[1].Ports, `[{protocol: TCP, port: 15021}, {protocol: TCP, port: 15443},
  {protocol: TCP, port: 15012}, {protocol: TCP, port: 15017}]`)
	if all := objects(t, "unseen"); all["Service"] != "" || len(all) != 5 {
		t.Errorf("%d objects", len(all))
	}
}

// A value that the chart does not know is refused by its name, with the path of the key to mend.
func TestKubeGatewayChartNamesWrongValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ set, line string }{
		{"replicas=2", "at '': additional properties 'replicas' not allowed"},
		{"service.loadBalancer=1.2.3.4", "at '/service': additional properties 'loadBalancer' not allowed"},
		{"service.ports[0].name=a,service.ports[0].port=80,service.ports[0].target=8080", "at '/service/ports/0': additional properties 'target' not allowed"},
		{"autoscaling.targetCPU=5", "at '/autoscaling': additional properties 'targetCPU' not allowed"},
		{"podDisruptionBudget.min=1", "at '/podDisruptionBudget': additional properties 'min' not allowed"},
		{"networkGatewayPorts.http.port=80", "at '/networkGatewayPorts': additional properties 'http' not allowed"},
		{"lifecycle.stop=x", "at '/lifecycle': additional properties 'stop' not allowed"},
		{"kind=StatefulSet", "at '/kind': value must be one of 'Deployment', 'DaemonSet'"},
		{"env.A.b=c", "at '/env/A': got object, want boolean or number or integer or string"},
		{"networkGatewayPorts.tls=null", "at '/networkGatewayPorts': missing property 'tls'"},
		{"labels=null", "at '': missing property 'labels'"},
		{"service.ports=null", "at '/service': missing property 'ports'"},
	} {
		if _, err := helm(t, "--set", c.set); err == nil || !strings.Contains(err.Error(), c.line) {
			t.Errorf("%s: %v, want %q", c.set, err, c.line)
		}
	}
	none := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(none, []byte("service: {ports: []}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := helm(t, "-f", none); err == nil || !strings.Contains(err.Error(), "service.ports is empty") {
		t.Errorf("no ports: %v", err)
	}
}

// The Pods of the chart get a router from the control plane's injection template, and keep what the chart says of them.
func TestKubeGatewayChartIsInjected(t *testing.T) {
	t.Parallel()
	config, err := inject.ParseConfig("the chart", injection.Config(), injection.Values(), nil)
	if err != nil {
		t.Fatal(err)
	}
	settings := inject.Settings{Config: config, Mesh: model.MeshDefaults(), Namespace: "istio-system"}
	text, notes, err := settings.Document([]byte(objects(t, "istio")["Deployment"]), true)
	if err != nil || len(notes) > 0 {
		t.Fatalf("%v, %q", err, notes)
	}
	pod := decode[appsv1.Deployment](t, string(text)).Spec.Template
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "istio-proxy" })
	if i < 0 || len(pod.Spec.Containers) != 2 {
		t.Fatalf("containers %+v", pod.Spec.Containers)
	}
	proxy := pod.Spec.Containers[i]
	if proxy.Image == "auto" || !slices.Contains(proxy.Args, "--type=router") {
		t.Errorf("container %s of image %s: %q", proxy.Name, proxy.Image, proxy.Args)
	}
	env := map[string]string{}
	for _, v := range proxy.Env {
		env[v.Name] = v.Value
	}
	if env["TERMINATION_DRAIN_DURATION_SECONDS"] != "100" || env["ISTIO_META_WORKLOAD_NAME"] != "istio-edge" ||
		!strings.Contains(env["PROXY_CONFIG"], `"terminationDrainDuration":"60s"`) {
		t.Errorf("variables %q", env)
	}
	same(t, "kept", []any{proxy.Resources.Limits, proxy.ReadinessProbe.FailureThreshold, proxy.SecurityContext.RunAsUser},
		`[{memory: 512Mi}, 4, 1500]`)
	// The kubelet asks each second at first: with the readiness probe alone a new gateway would be ready after 15 s.
	same(t, "startup probe", proxy.StartupProbe,
		`{httpGet: {path: /healthz/ready, port: 15021}, periodSeconds: 1, timeoutSeconds: 3, failureThreshold: 600}`)
	for _, name := range []string{"certificates", "istio-envoy", "istio-token"} {
		if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name }) {
			t.Errorf("no volume %s", name)
		}
	}
}
