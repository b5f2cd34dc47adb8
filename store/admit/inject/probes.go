package inject

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// probersVariable is the agent's variable with the application's original probes and hooks, by path, as JSON.
const probersVariable = "ISTIO_KUBE_APP_PROBERS"

// prober is a probe or a hook in the agent's format. One of the first three fields is set.
type prober struct {
	HTTPGet        *corev1.HTTPGetAction   `json:"httpGet,omitempty"`
	TCPSocket      *corev1.TCPSocketAction `json:"tcpSocket,omitempty"`
	GRPC           *corev1.GRPCAction      `json:"grpc,omitempty"`
	TimeoutSeconds int32                   `json:"timeoutSeconds,omitempty"`
}

// action points to the fields of a container's probe or hook. For a hook, the field grpc points to nil.
type action struct {
	http    **corev1.HTTPGetAction
	tcp     **corev1.TCPSocketAction
	grpc    **corev1.GRPCAction
	timeout int32
}

// actions returns the probes and hooks of a container, by the path at which the kubelet calls the agent (istio:
// pilot-agent status.FormatProberURL).
func actions(c *corev1.Container) map[string]action {
	all := map[string]action{}
	probe := func(path string, p *corev1.Probe) {
		if p != nil {
			all["/app-health/"+c.Name+path] = action{&p.HTTPGet, &p.TCPSocket, &p.GRPC, p.TimeoutSeconds}
		}
	}
	probe("/readyz", c.ReadinessProbe)
	probe("/livez", c.LivenessProbe)
	probe("/startupz", c.StartupProbe)
	hook := func(path string, h *corev1.LifecycleHandler) {
		if h != nil {
			all["/app-lifecycle/"+c.Name+path] = action{&h.HTTPGet, &h.TCPSocket, new(*corev1.GRPCAction), 0}
		}
	}
	if c.Lifecycle != nil {
		hook("/prestopz", c.Lifecycle.PreStop)
		hook("/poststartz", c.Lifecycle.PostStart)
	}
	return all
}

// rewriteProbes redirects probes and hooks to the agent, at its port. If the port is 0, it changes nothing. The agent
// calls the application without the proxy, because the kubelet has no certificate of the mesh. Commands, hooks that
// sleep, and actions with a host or an unknown port name are not redirected. Probes and hooks of init containers that
// start before the agent are not redirected either. The kubelet waits for their startup probes and hooks before it
// starts the agent, so the agent could not answer. The containers must be in their final order. It fails only if the
// original actions cannot be encoded.
func rewriteProbes(pod *corev1.Pod, sidecar *corev1.Container, port int32) error {
	if port == 0 {
		return nil
	}
	all := map[string]prober{}
	init := pod.Spec.InitContainers
	if at := index(init, ProxyContainer); at >= 0 {
		init = init[at:]
	} else {
		init = nil
	}
	for _, list := range [][]corev1.Container{init, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == ProxyContainer {
				continue
			}
			for path, a := range actions(&list[i]) {
				if p, ok := a.take(list[i].Ports, path, port); ok {
					all[path] = p
				}
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	text, err := json.Marshal(all)
	if err == nil {
		setEnv(sidecar, probersVariable, string(text))
	}
	return err
}

// take redirects one action to the agent, and returns the original action with its port as a number. The result is
// false if the action is not redirected.
func (a action) take(ports []corev1.ContainerPort, path string, port int32) (prober, bool) {
	p := prober{HTTPGet: *a.http, TCPSocket: *a.tcp, GRPC: *a.grpc, TimeoutSeconds: a.timeout}.deepCopy()
	to := &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(port)}
	switch {
	case p.HTTPGet != nil:
		if p.HTTPGet.Host != "" || !number(&p.HTTPGet.Port, ports) || p.HTTPGet.Path == path && p.HTTPGet.Port.IntVal == port {
			return prober{}, false
		}
		to.HTTPHeaders = p.HTTPGet.HTTPHeaders
		if p.HTTPGet.Scheme != "" {
			to.Scheme = corev1.URISchemeHTTP // TLS, if any, is between agent and application
		}
	case p.TCPSocket != nil:
		if p.TCPSocket.Host != "" || !number(&p.TCPSocket.Port, ports) {
			return prober{}, false
		}
	case p.GRPC != nil:
	default:
		return prober{}, false
	}
	*a.http, *a.tcp, *a.grpc = to, nil, nil
	return p, true
}

func (p prober) deepCopy() prober {
	return prober{p.HTTPGet.DeepCopy(), p.TCPSocket.DeepCopy(), p.GRPC.DeepCopy(), p.TimeoutSeconds}
}

// number replaces a port's name with its number. It returns false if no port has the name.
func number(port *intstr.IntOrString, ports []corev1.ContainerPort) bool {
	if port.Type == intstr.Int {
		return true
	}
	for _, p := range ports {
		if p.Name == port.StrVal {
			*port = intstr.FromInt32(p.ContainerPort)
			return true
		}
	}
	return false
}

// restoreProbes reverses rewriteProbes, given the value of probersVariable. Probes and hooks that no longer call the
// agent are not changed. Ports that had names stay numbers.
func restoreProbes(pod *corev1.Pod, text string) {
	var all map[string]prober
	if text == "" || json.Unmarshal([]byte(text), &all) != nil {
		return
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for path, a := range actions(&list[i]) {
				if p, there := all[path]; there && *a.http != nil && (*a.http).Path == path {
					*a.http, *a.tcp, *a.grpc = p.HTTPGet, p.TCPSocket, p.GRPC
				}
			}
		}
	}
}
