package inject

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/scrape"
)

// injectedPod injects a Pod, given as YAML, in namespace shop.
func injectedPod(t *testing.T, s *Settings, text string) *corev1.Pod {
	t.Helper()
	return injectTwice(t, s, Request{Pod: podOf(t, text), Namespace: "shop"})
}

func words(values ...any) string { return strings.TrimSuffix(fmt.Sprintln(values...), "\n") }

func annotated(annotations string) string {
	return "metadata: {name: web-0, labels: {app: web}, annotations: {" + annotations + "}}\nspec: {containers: [{name: app, image: web, ports: [{name: http, containerPort: 8080}]}]}"
}

func envOf(c *corev1.Container, name string) string {
	for _, e := range c.Env {
		if e.Name == name {
			return e.Value
		}
	}
	return absentValue
}

func nth(t *testing.T, pod *corev1.Pod, name string) *corev1.Container {
	t.Helper()
	c := container(name, pod)
	if c == nil {
		t.Fatalf("there is no container %s", name)
	}
	return c
}

func containerNames(list []corev1.Container) (all []string) {
	for _, c := range list {
		all = append(all, c.Name)
	}
	return all
}

// The annotations that users rely on.
func TestAnnotations(t *testing.T) {
	for _, c := range []struct {
		annotations string
		got         func(pod *corev1.Pod) any
		want        string
	}{
		{`sidecar.istio.io/proxyCPU: 250m, sidecar.istio.io/proxyMemoryLimit: 2Gi`, func(p *corev1.Pod) any {
			r := container(ProxyContainer, p).Resources
			return words(r.Requests.Cpu(), r.Requests.Memory(), r.Limits.Cpu(), r.Limits.Memory())
		}, "250m 0 0 2Gi"},
		{``, func(p *corev1.Pod) any { return container(ProxyContainer, p).Resources.Limits.Cpu().String() }, "2"},
		{`sidecar.istio.io/proxyImage: example.com/own/proxy:1`, func(p *corev1.Pod) any {
			return container(ProxyContainer, p).Image + " " + container(initContainer, p).Image
		}, "example.com/own/proxy:1 example.com/own/proxy:1"},
		{`sidecar.istio.io/proxyImageType: distroless`, func(p *corev1.Pod) any { return container(ProxyContainer, p).Image }, "navarch/navarch-agent:dev-distroless"},
		{`proxy.istio.io/config: '{"image": {"imageType": "debug"}}'`, func(p *corev1.Pod) any { return container(ProxyContainer, p).Image }, "navarch/navarch-agent:dev-debug"},
		{`sidecar.istio.io/logLevel: debug, sidecar.istio.io/agentLogLevel: "default:warn"`, func(p *corev1.Pod) any { return container(ProxyContainer, p).Args },
			"[run --envoy-log-level=debug --envoy-component-log-level=misc:error --log-level=default:warn]"},
		{`sidecar.istio.io/agentLogLevel: "default:info,ads:debug"`, func(p *corev1.Pod) any { return container(ProxyContainer, p).Args[3] }, "--log-level=default:info,ads:debug"},
		{`traffic.sidecar.istio.io/includeOutboundIPRanges: "10.0.0.0/8,fd00::/8", traffic.sidecar.istio.io/excludeOutboundIPRanges: 10.1.0.0/16, traffic.sidecar.istio.io/includeInboundPorts: "80,443", traffic.sidecar.istio.io/excludeInboundPorts: "22", traffic.sidecar.istio.io/excludeOutboundPorts: "25", traffic.sidecar.istio.io/includeOutboundPorts: "5432", traffic.sidecar.istio.io/excludeInterfaces: eth1, istio.io/reroute-virtual-interfaces: tap0`,
			func(p *corev1.Pod) any { return container(initContainer, p).Args },
			"[redirect -p 15001 -z 15006 -u 1337 -m REDIRECT -i 10.0.0.0/8,fd00::/8 -x 10.1.0.0/16 -b 80,443 -d 15090,15021,22,15020 -q 5432 -o 25 -k tap0 -c eth1]"},
		{`sidecar.istio.io/interceptionMode: TPROXY`, func(p *corev1.Pod) any {
			c := container(ProxyContainer, p).SecurityContext
			return words(c.Capabilities.Add, *c.RunAsUser, *c.RunAsNonRoot, envOf(container(ProxyContainer, p), "ISTIO_META_INTERCEPTION_MODE"))
		}, "[NET_ADMIN] 0 false TPROXY"},
		{`sidecar.istio.io/interceptionMode: NONE`, func(p *corev1.Pod) any { return containerNames(p.Spec.InitContainers) }, "[]"},
		{`proxy.istio.io/config: "proxyMetadata: {ISTIO_META_DNS_CAPTURE: 'true', OTHER: '1'}\nconcurrency: 0\ndiscoveryAddress: istiod.other:15012"`, func(p *corev1.Pod) any {
			proxy := container(ProxyContainer, p)
			return strings.Join([]string{envOf(proxy, "ISTIO_META_DNS_CAPTURE"), envOf(container(initContainer, p), "ISTIO_META_DNS_CAPTURE"), envOf(proxy, "PROXY_CONFIG")}, " ")
		}, `true true {"discoveryAddress":"istiod.other:15012","concurrency":0,"proxyMetadata":{"ISTIO_META_DNS_CAPTURE":"true","OTHER":"1"}}`},
		{`proxy.istio.io/config: "holdApplicationUntilProxyStarts: true"`, func(p *corev1.Pod) any {
			return words(containerNames(p.Spec.Containers), container(ProxyContainer, p).Lifecycle.PostStart.Exec.Command)
		}, "[istio-proxy app] [navarch-agent wait]"},
		{`readiness.status.sidecar.istio.io/periodSeconds: "7", readiness.status.sidecar.istio.io/failureThreshold: "9"`, func(p *corev1.Pod) any {
			r := container(ProxyContainer, p).ReadinessProbe
			return words(r.PeriodSeconds, r.FailureThreshold, r.HTTPGet.Port.String())
		}, "7 9 15021"},
		{`status.sidecar.istio.io/port: "15999"`, func(p *corev1.Pod) any {
			args := container(ProxyContainer, p).Args
			return words(args[len(args)-1], p.Annotations["prometheus.io/port"])
		}, "--stats-addr=:15999 15999"},
		{`status.sidecar.istio.io/port: "0"`, func(p *corev1.Pod) any { return container(ProxyContainer, p).ReadinessProbe == nil }, "true"},
		{`sidecar.istio.io/userVolume: '{"cache": {"emptyDir": {}}}', sidecar.istio.io/userVolumeMount: '{"cache": {"mountPath": "/cache", "readOnly": true}}'`, userVolume, "true cache /cache true"},
		{`sidecar.istio.io/userVolume: '[{"name": "cache", "emptyDir": {}}]', sidecar.istio.io/userVolumeMount: '[{"name": "cache", "mountPath": "/cache", "readOnly": true}]'`, userVolume, "true cache /cache true"},
		{`sidecar.istio.io/nativeSidecar: "true"`, func(p *corev1.Pod) any {
			return words(containerNames(p.Spec.InitContainers), containerNames(p.Spec.Containers), *container(ProxyContainer, p).RestartPolicy)
		}, "[istio-init istio-proxy] [app] Always"},
		// As the check of the annotation reads it (strconv.ParseBool).
		{`sidecar.istio.io/nativeSidecar: "T"`, func(p *corev1.Pod) any { return containerNames(p.Spec.Containers) }, "[app]"},
		{`kubectl.kubernetes.io/default-container: mine`, func(p *corev1.Pod) any { return p.Annotations["kubectl.kubernetes.io/default-container"] }, "mine"},
	} {
		pod := injectedPod(t, settings(t), annotated(c.annotations))
		if got := fmt.Sprint(c.got(pod)); got != c.want {
			t.Errorf("%s: %s, want %s", c.annotations, got, c.want)
		}
	}
}

func userVolume(p *corev1.Pod) any {
	volume := slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "cache" && v.EmptyDir != nil })
	mounts := container(ProxyContainer, p).VolumeMounts
	last := mounts[len(mounts)-1]
	return words(volume, last.Name, last.MountPath, last.ReadOnly)
}

// Where kubelets know sidecar containers, each word for false keeps the proxy from being one.
func TestNotNative(t *testing.T) {
	for _, word := range []string{"false", "False", "FALSE", "f", "0"} {
		pod := injectTwice(t, settings(t), Request{Pod: podOf(t, annotated(`sidecar.istio.io/nativeSidecar: "`+word+`"`)), Namespace: "shop", Native: true})
		if got := fmt.Sprint(containerNames(pod.Spec.Containers)); got != "[app istio-proxy]" {
			t.Errorf("%s: the containers are %s", word, got)
		}
	}
}

// Values of annotations that become redirection rules are validated; the error names all invalid ones.
func TestAnnotationsAreChecked(t *testing.T) {
	pod := podOf(t, annotated(`sidecar.istio.io/interceptionMode: ALL, traffic.sidecar.istio.io/includeOutboundIPRanges: 10.0.0.1, traffic.sidecar.istio.io/excludeInboundPorts: "80,99999",
 status.sidecar.istio.io/port: x, readiness.status.sidecar.istio.io/periodSeconds: "-1", sidecar.istio.io/nativeSidecar: perhaps, sidecar.istio.io/agentLogLevel: "ads:loud", prometheus.istio.io/merge-metrics: "2"`))
	_, err := settings(t).Inject(t.Context(), Request{Pod: pod, Namespace: "shop"})
	if err == nil || strings.Count(err.Error(), "annotation ") != 8 {
		t.Fatalf("%v", err)
	}
	for _, bad := range []string{`proxy.istio.io/config: "["`, `proxy.istio.io/config: "concurrency: many"`, `sidecar.istio.io/status: "{"`, `sidecar.istio.io/bootstrapOverride: own`, `sidecar.istio.io/userVolume: "{"`,
		`sidecar.istio.io/status: "{}", proxy.istio.io/overrides: "["`} {
		if _, err := settings(t).Inject(t.Context(), Request{Pod: podOf(t, annotated(bad)), Namespace: "shop"}); err == nil || !strings.Contains(err.Error(), strings.SplitN(bad, ":", 2)[0]) && !strings.Contains(err.Error(), "is not JSON") && !strings.Contains(err.Error(), "overrides") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// Where the values list images, a Pod that names another one is refused, by annotation and value; without a list every
// image is allowed.
// Promise: security-admission.md#expensive-objects
func TestAllowedProxyImages(t *testing.T) {
	for asked, want := range map[string]bool{
		"example.com/own/proxy:1": true, "registry.example.com/mesh/proxyv2:1.30": true, "registry.example.com/mesh/": true,
		"example.com/own/proxy:2": false, "example.com/own/proxy": false, "registry.example.com/meshes/proxyv2:1": false, "docker.io/evil/registry.example.com/mesh/x": false, "proxyv2": false, "": false,
	} {
		pod := podOf(t, annotated(""))
		pod.Annotations = map[string]string{"sidecar.istio.io/proxyImage": asked}
		s := settings(t)
		if _, err := s.Inject(t.Context(), Request{Pod: pod, Namespace: "shop"}); err != nil {
			t.Errorf("%q, without a list: %v", asked, err)
		}
		s.Config.values.Global.Proxy.Allowed = []string{"example.com/own/proxy:1", "registry.example.com/mesh/*"}
		_, err := s.Inject(t.Context(), Request{Pod: pod, Namespace: "shop"})
		if want != (err == nil) || err != nil && !strings.Contains(err.Error(), "annotation sidecar.istio.io/proxyImage: "+strconv.Quote(asked)) {
			t.Errorf("%q: %v", asked, err)
		}
		if _, err := s.Inject(t.Context(), Request{Pod: podOf(t, annotated("")), Namespace: "shop"}); err != nil {
			t.Errorf("a Pod that names none: %v", err)
		}
	}
}

// An annotation cannot break out of the text into which it is inserted: its value stays one value.
func TestAnnotationsAreQuoted(t *testing.T) {
	evil := "x\"\n    securityContext: {privileged: true}\n    - \u2028 {{ fail }} 'y' \\ # : }"
	pod := podOf(t, annotated(""))
	pod.Annotations = map[string]string{"sidecar.istio.io/logLevel": evil, "sidecar.istio.io/proxyImageType": evil, "kubectl.kubernetes.io/default-container": evil}
	out := injectTwice(t, settings(t), Request{Pod: pod, Namespace: "shop"})
	proxy := nth(t, out, ProxyContainer)
	if proxy.Args[1] != "--envoy-log-level="+evil || *proxy.SecurityContext.Privileged || proxy.Image != "navarch/navarch-agent:dev-"+evil {
		t.Errorf("%q %q %v", proxy.Args, proxy.Image, proxy.SecurityContext)
	}
}

const probed = `
metadata: {name: web-0}
spec:
  initContainers:
  - {name: aside, image: aside, restartPolicy: Always, startupProbe: {tcpSocket: {port: 7000}}}
  containers:
  - name: app
    image: web
    ports: [{name: http, containerPort: 8080}]
    readinessProbe: {httpGet: {path: /ready, port: http, scheme: HTTPS, httpHeaders: [{name: Host, value: a}]}, timeoutSeconds: 3}
    livenessProbe: {tcpSocket: {port: 8080}}
    startupProbe: {grpc: {port: 9000, service: s}}
    lifecycle: {preStop: {httpGet: {path: /bye, port: 8080}}, postStart: {tcpSocket: {port: http}}}
  - name: left
    image: left
    readinessProbe: {exec: {command: [ok]}}
    livenessProbe: {httpGet: {path: /, port: nowhere}}
    startupProbe: {httpGet: {path: /, port: 80, host: other}}
    lifecycle: {preStop: {sleep: {seconds: 5}}, postStart: {exec: {command: [ok]}}}
`

func TestProbesAreTheAgents(t *testing.T) {
	before := podOf(t, probed)
	pod := injectTwice(t, settings(t), Request{Pod: before, Namespace: "shop", Native: true})
	app := nth(t, pod, "app")
	for path, p := range map[string]*corev1.HTTPGetAction{"/app-health/app/readyz": app.ReadinessProbe.HTTPGet, "/app-health/app/livez": app.LivenessProbe.HTTPGet, "/app-health/app/startupz": app.StartupProbe.HTTPGet,
		"/app-lifecycle/app/prestopz": app.Lifecycle.PreStop.HTTPGet, "/app-lifecycle/app/poststartz": app.Lifecycle.PostStart.HTTPGet, "/app-health/aside/startupz": nth(t, pod, "aside").StartupProbe.HTTPGet} {
		if p == nil || p.Path != path || p.Port.IntVal != 15020 || p.Scheme == "HTTPS" {
			t.Errorf("%s: %v", path, p)
		}
	}
	if app.LivenessProbe.TCPSocket != nil || app.StartupProbe.GRPC != nil || app.ReadinessProbe.TimeoutSeconds != 3 || app.ReadinessProbe.HTTPGet.HTTPHeaders[0].Name != "Host" {
		t.Errorf("%v", app)
	}
	if got, want := string(encoded(t, nth(t, pod, "left"))), string(encoded(t, container("left", before))); got != want {
		t.Errorf("what is to be left alone is %s, was %s", got, want)
	}
	var asked map[string]prober
	if err := json.Unmarshal([]byte(envOf(nth(t, pod, ProxyContainer), "ISTIO_KUBE_APP_PROBERS")), &asked); err != nil {
		t.Fatal(err)
	}
	want := `{"/app-health/app/livez":{"tcpSocket":{"port":8080}},"/app-health/app/readyz":{"httpGet":{"path":"/ready","port":8080,"scheme":"HTTPS","httpHeaders":[{"name":"Host","value":"a"}]},"timeoutSeconds":3},` +
		`"/app-health/app/startupz":{"grpc":{"port":9000,"service":"s"}},"/app-health/aside/startupz":{"tcpSocket":{"port":7000}},"/app-lifecycle/app/poststartz":{"tcpSocket":{"port":8080}},"/app-lifecycle/app/prestopz":{"httpGet":{"path":"/bye","port":8080}}}`
	if got := string(encoded(t, asked)); got != want {
		t.Errorf("the agent asks\n%s, want\n%s", got, want)
	}
	// The kubelet waits for the probe of an application's sidecar before it starts containers; here the agent is one of
	// these.
	pod = injectedPod(t, settings(t), probed)
	if got, want := string(encoded(t, nth(t, pod, "aside"))), string(encoded(t, container("aside", before))); got != want || strings.Contains(envOf(nth(t, pod, ProxyContainer), probersVariable), "aside") {
		t.Errorf("a sidecar that starts before the agent is %s, was %s", got, want)
	}
	if got := nth(t, pod, "app").ReadinessProbe.HTTPGet.Path; got != "/app-health/app/readyz" {
		t.Errorf("where the agent is a container like others, the application is asked at %s", got)
	}
	for _, off := range []string{`sidecar.istio.io/rewriteAppHTTPProbers: "false"`, `status.sidecar.istio.io/port: "0"`} {
		pod := injectedPod(t, settings(t), strings.Replace(probed, "name: web-0", "name: web-0, annotations: {"+off+"}", 1))
		if got, want := string(encoded(t, nth(t, pod, "app"))), string(encoded(t, container("app", before))); got != want || envOf(nth(t, pod, ProxyContainer), "ISTIO_KUBE_APP_PROBERS") != absentValue {
			t.Errorf("%s: %s", off, got)
		}
	}
}

func TestMetricsAreMerged(t *testing.T) {
	const merged = "15020 /stats/prometheus true"
	for annotations, want := range map[string]string{
		``:                        merged + " " + absentValue,
		`prometheus.io/port: "9"`: merged + ` {"scrape":"","path":"","port":"9"}`,
		`prometheus-io/port: "9", prometheus.io.path: /m, prometheus.io/scrape: "true"`:                                   merged + ` {"scrape":"true","path":"/m","port":"9"}`,
		`prometheus.io/scrape: "false", prometheus.io/port: "9"`:                                                          `9  false ` + absentValue,
		`prometheus.io/path: /stats/prometheus, prometheus.io/scrape: "false"`:                                            ` /stats/prometheus false ` + absentValue,
		`prometheus.io/path: /stats/prometheus, prometheus.io/scrape: "true", prometheus.istio.io/merge-metrics: "false"`: ` /stats/prometheus true ` + absentValue,
		`prometheus.istio.io/merge-metrics: "false", prometheus.io/port: "9"`:                                             `9   ` + absentValue,
		`prometheus.istio.io/scrape-targets: "9100, 9200:/m"`:                                                             merged + ` {"scrape":"true","path":"/metrics","port":"9100","targets":[{"port":"9100","path":"/metrics"},{"port":"9200","path":"/m"}]}`,
		`prometheus.istio.io/scrape-targets: "9100:/a", prometheus.io/port: "9"`:                                          merged + ` {"scrape":"true","path":"","port":"9","targets":[{"port":"9100","path":"/a"}]}`,
		`status.sidecar.istio.io/port: " 15999"`:                                                                          "15999 /stats/prometheus true " + absentValue,
		`prometheus.istio.io/scrape-targets: ","`:                                                                         merged + " " + absentValue,
		`prometheus.istio.io/scrape-targets: "15999", status.sidecar.istio.io/port: "0"`:                                  `   ` + absentValue,
	} {
		pod := injectedPod(t, settings(t), annotated(annotations))
		a := pod.Annotations
		if got := strings.Join([]string{a["prometheus.io/port"], a["prometheus.io/path"], a["prometheus.io/scrape"], envOf(nth(t, pod, ProxyContainer), scrape.Variable)}, " "); got != want {
			t.Errorf("%s: %s, want %s", annotations, got, want)
		}
	}
	for _, bad := range []string{`"15020"`, `"9100,15090:/m"`, `"15999", status.sidecar.istio.io/port: "15999"`, `":/m"`, `"http"`} {
		_, err := settings(t).Inject(t.Context(), Request{Pod: podOf(t, annotated("prometheus.istio.io/scrape-targets: "+bad)), Namespace: "shop"})
		if err == nil || !strings.Contains(err.Error(), "annotation prometheus.istio.io/scrape-targets: ") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// The author's own istio-proxy counts before the template's, whether it becomes a sidecar container or not; so it does
// when the Pod is injected again, with other settings.
func TestOwnContainerIsOverlay(t *testing.T) {
	const text = `
metadata: {name: web-0}
spec:
  containers:
  - {name: istio-proxy, image: auto, args: [own], env: [{name: OWN, value: "1"}, {name: TRUST_DOMAIN, value: own}], securityContext: {runAsUser: 4000}, resources: {limits: {cpu: "7"}}}
  - {name: app, image: web}
`
	for _, native := range []bool{false, true} {
		s := settings(t)
		out := injectTwice(t, s, Request{Pod: podOf(t, text), Namespace: "shop", Native: native})
		check := func(pod *corev1.Pod, image string) {
			t.Helper()
			c := nth(t, pod, ProxyContainer)
			init := nth(t, pod, initContainer)
			if got := words(c.Image, c.Args, envOf(c, "OWN"), envOf(c, "TRUST_DOMAIN"), envOf(c, "CA_ADDR"), *c.SecurityContext.RunAsUser, c.Resources.Limits.Cpu(), init.Args[5:7]); got !=
				image+" [own] 1 own istiod.istio-system.svc:15012 4000 7 [-u 4000]" {
				t.Errorf("native %v: %s", native, got)
			}
			if got := fmt.Sprint(containerNames(pod.Spec.Containers), len(c.Ports)); native && got != "[app] 1" || !native && got != "[app istio-proxy] 1" {
				t.Errorf("native %v: %s", native, got)
			}
		}
		check(out, "navarch/navarch-agent:dev")
		newer, err := with(t, s, "tag: dev", "tag: 2").Inject(t.Context(), Request{Pod: out, Namespace: "shop", Native: native})
		if err != nil {
			t.Fatal(err)
		}
		check(newer, "navarch/navarch-agent:2")
	}
}

// A second injection sees changes that another webhook made after the first.
func TestInjectedAgain(t *testing.T) {
	s := settings(t)
	out := injectedPod(t, s, probed)
	out.Spec.Containers = append(out.Spec.Containers, *container("app", podOf(t, strings.ReplaceAll(strings.ReplaceAll(probed, "name: app", "name: more"), "name: left", "name: app"))).DeepCopy())
	out.Spec.Containers[len(out.Spec.Containers)-1].Name = "more"
	out.Spec.Containers[len(out.Spec.Containers)-1].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{}}}
	out.Spec.Containers[len(out.Spec.Containers)-1].ReadinessProbe.TCPSocket.Port.IntVal = 81
	container(ProxyContainer, out).VolumeMounts = append(container(ProxyContainer, out).VolumeMounts, corev1.VolumeMount{Name: "kube-api-access", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"})
	again := injectTwice(t, s, Request{Pod: out, Namespace: "shop"})
	proxy := nth(t, again, ProxyContainer)
	if got := envOf(proxy, "ISTIO_META_APP_CONTAINERS"); got != "app,left,more" {
		t.Errorf("application containers %s", got)
	}
	if !strings.Contains(envOf(proxy, probersVariable), `"/app-health/more/readyz":{"tcpSocket":{"port":81}}`) || !strings.Contains(envOf(proxy, probersVariable), `"/app-health/app/startupz":{"grpc":{"port":9000,"service":"s"}}`) {
		t.Errorf("probes %s", envOf(proxy, probersVariable))
	}
	if !slices.ContainsFunc(proxy.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "kube-api-access" }) {
		t.Error("what another has given the proxy is gone")
	}
}

// Several templates are merged in order; an alias stands for several templates.
func TestSeveralTemplates(t *testing.T) {
	s := settings(t, "templates:\n", "aliases: {both: [sidecar, team]}\ntemplates:\n  team: |\n    metadata: {labels: {team: \"{{ .ObjectMeta.Name }}\"}}\n    spec: {volumes: [{name: mine, emptyDir: {}}], containers: [{name: istio-proxy, env: [{name: TEAM, value: red}]}]}\n",
		"injectedAnnotations: {}", "injectedAnnotations: {apparmor: runtime}")
	for _, asked := range []string{"both", "sidecar, team"} {
		pod := injectedPod(t, s, annotated("inject.istio.io/templates: '"+asked+"'"))
		proxy := nth(t, pod, ProxyContainer)
		if pod.Labels["team"] != "web-0" || envOf(proxy, "TEAM") != "red" || envOf(proxy, "CA_ADDR") == absentValue || pod.Annotations["apparmor"] != "runtime" {
			t.Errorf("%s: %v %v", asked, pod.Labels, proxy.Env)
		}
		var status names
		if err := json.Unmarshal([]byte(pod.Annotations["sidecar.istio.io/status"]), &status); err != nil || status.Revision != "default" ||
			!slices.Equal(status.Containers, []string{"istio-proxy"}) || !slices.Equal(status.InitContainers, []string{"istio-init"}) || !slices.Contains(status.Volumes, "mine") {
			t.Errorf("%v, %v", status, err)
		}
	}
}

// The place of the proxy comes from path, values and label; the label has precedence.
func TestPlace(t *testing.T) {
	for _, c := range []struct{ label, values, path, want string }{
		{"", "", "/inject", "Kubernetes " + absentValue + " "},
		{"", "n1", "/inject", "Kubernetes n1 n1"},
		{"", "n1", "/inject/cluster/west/net/n2/extra/e", "west n2 n2"},
		{"n3", "n1", "/inject/cluster/west/net/n2", "west n3 n3"},
		{"empty", "", "/inject/cluster/west/net/n2", "west " + absentValue + " "},
	} {
		pod := podOf(t, simplePod)
		if c.label != "" {
			pod.Labels["topology.istio.io/network"] = strings.TrimPrefix(c.label, "empty")
		}
		path, err := ParsePath(c.path)
		if err != nil {
			t.Fatal(err)
		}
		out := injectTwice(t, settings(t, `network: ""`, `network: "`+c.values+`"`), Request{Pod: pod, Namespace: "shop", Path: path})
		proxy := nth(t, out, ProxyContainer)
		if got := strings.Join([]string{envOf(proxy, clusterVariable), envOf(proxy, networkVariable), out.Labels["topology.istio.io/network"]}, " "); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
		if strings.Contains(c.path, "extra") && envOf(proxy, "EXTRA") != "e" {
			t.Error("a variable of the path is not there")
		}
	}
}

func TestOwner(t *testing.T) {
	for _, c := range []struct{ kind, name, labels, want string }{
		{"ReplicaSet", "web-abc", "pod-template-hash: abc", "Deployment web"},
		{"ReplicaSet", "web", "pod-template-hash: abc", "ReplicaSet web"},
		{"ReplicaSet", "web-abc", "rollouts-pod-template-hash: abc", "Rollout web"},
		{"Job", "nightly-28123456", "", "CronJob nightly"},
		{"Job", "once", "", "Job once"},
		{"ReplicationController", "web-1", "deploymentconfig: web", "DeploymentConfig web"},
		{"StatefulSet", "db", "", "StatefulSet db"},
	} {
		pod := podOf(t, "metadata: {name: p, labels: {"+c.labels+"}, ownerReferences: [{kind: Node, name: n, apiVersion: v1, uid: a}, {kind: "+c.kind+", name: "+c.name+", apiVersion: x/v1, uid: b, controller: true}]}")
		if o := ownerOf(pod, nil); o.Kind+" "+o.Name != c.want || o.APIVersion != map[bool]string{true: "v1alpha1", false: "x/v1"}[c.want == "Rollout web"] {
			t.Errorf("%+v: %v", c, o)
		}
	}
	if o := ownerOf(podOf(t, simplePod), nil); o != (Owner{"v1", "Pod", "web-0"}) {
		t.Errorf("%v", o)
	}
}
