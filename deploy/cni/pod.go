package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"istio.io/api/annotation"
	"istio.io/api/label"
	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/deploy/redirect"
)

// Names of containers that injection adds.
const (
	proxyContainer      = "istio-proxy"
	initContainer       = "istio-init"
	validationContainer = "istio-validation"
)

// leftAlone returns why the plugin does not redirect a Pod's traffic; empty: it does. The rules are those of Istio's
// plugin (cni/README.md).
func leftAlone(pod *corev1.Pod) string {
	proxy := proxyOf(pod)
	switch {
	case pod.Spec.HostNetwork:
		return "it is in the node's network"
	case proxy == nil:
		return "it has no proxy"
	case slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == initContainer }):
		return "a container of its own redirects it"
	case pod.Annotations[annotation.SidecarStatus.Name] == "":
		return "it was not injected"
	case pod.Labels[label.SidecarInject.Name] == "false" || pod.Annotations[annotation.SidecarInject.Name] == "false":
		return "it has said no to injection"
	case slices.ContainsFunc(proxy.Env, func(e corev1.EnvVar) bool { return e.Name == "DISABLE_ENVOY" }):
		return "it has an agent without Envoy"
	case !isSidecar(proxy.Args):
		return "its proxy is a gateway"
	case pod.Annotations[annotation.SidecarInterceptionMode.Name] == "NONE":
		return "its traffic is not to be redirected"
	}
	return ""
}

// isSidecar reports whether the arguments of a stock or own agent run a sidecar: "proxy sidecar ...", or no "--type
// router".
func isSidecar(args []string) bool {
	if len(args) >= 2 && args[0] == "proxy" {
		return args[1] == "sidecar"
	}
	return !strings.Contains(strings.Join(args, "=")+"=", "--type=router=")
}

// proxyOf returns the proxy's container, which may be an init container (a native sidecar); nil: the Pod has no proxy.
func proxyOf(pod *corev1.Pod) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == proxyContainer {
				return &list[i]
			}
		}
	}
	return nil
}

// configOf returns the redirection of a Pod with a proxy. The error names an annotation or variable that cannot be
// parsed.
func configOf(pod *corev1.Pod) (redirect.Config, error) {
	proxy := proxyOf(pod)
	p := redirect.Pod{Annotations: pod.Annotations, Env: map[string]string{}}
	for _, e := range proxy.Env {
		p.Env[e.Name] = e.Value
	}
	if d := pod.Spec.DNSConfig; d != nil && pod.Spec.DNSPolicy == corev1.DNSNone {
		for i, server := range d.Nameservers {
			at, err := netip.ParseAddr(server)
			if err != nil {
				return redirect.Config{}, fmt.Errorf("spec.dnsConfig.nameservers[%d]: %w", i, err)
			}
			p.Resolvers = append(p.Resolvers, at)
		}
	}
	if s := pod.Spec.SecurityContext; s != nil {
		p.UID, p.GID = s.RunAsUser, s.RunAsGroup
	}
	if s := proxy.SecurityContext; s != nil {
		if s.RunAsUser != nil {
			p.UID = s.RunAsUser
		}
		if s.RunAsGroup != nil {
			p.GID = s.RunAsGroup
		}
	}
	return p.Config()
}
