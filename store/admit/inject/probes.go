package inject

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// probersVariable tells the agent which probes and hooks of the application the kubelet asks it for.
const probersVariable = "ISTIO_KUBE_APP_PROBERS"

// prober is a probe or a hook as the agent sends it: one of the first three is set.
type prober struct {
	HTTPGet        *corev1.HTTPGetAction   `json:"httpGet,omitempty"`
	TCPSocket      *corev1.TCPSocketAction `json:"tcpSocket,omitempty"`
	GRPC           *corev1.GRPCAction      `json:"grpc,omitempty"`
	TimeoutSeconds int32                   `json:"timeoutSeconds,omitempty"`
}

// action is where a probe or a hook of a container says what is asked. Hooks have no gRPC.
type action struct {
	http    **corev1.HTTPGetAction
	tcp     **corev1.TCPSocketAction
	grpc    **corev1.GRPCAction
	timeout int32
}

// actions are those of a container, by the path at which the kubelet asks the agent (istio: pilot-agent status.FormatProberURL).
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

// rewriteProbes has the kubelet ask the agent, which asks the application past the proxy: the kubelet has no certificate of the mesh. Left alone
// are commands, hooks that sleep, what asks another host than the Pod, and what names a port that the container does not have; and init containers
// that start before the agent does: the kubelet waits for their startup probes and hooks, and nobody would answer them. The containers are in order.
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

// take gives the probe to the agent; false: it is left alone.
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
			to.Scheme = corev1.URISchemeHTTP // the agent speaks TLS to the application
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

// number makes a port's name its number; false: the container has no such port.
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

// restoreProbes is rewriteProbes backwards. What somebody has changed since is left alone.
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
