package inject

import (
	corev1 "k8s.io/api/core/v1"
)

// order moves the containers of templates to the places that Istio gives them (istio: pkg/kube/inject, reorderPod).
//
// If the proxy is an ordinary container, it becomes the last container, so that kubectl exec selects the application.
// If hold is set, it becomes the first, so that the application starts after the proxy.
//
// If the proxy is a sidecar container, the init containers begin with istio-init, istio-validation, the proxy and
// enable-core-dump. The later init containers of the application are in the mesh. If the proxy is an ordinary
// container, istio-validation becomes the first init container, so that nothing runs before redirection is checked. The
// init containers istio-init and enable-core-dump become the last ones, because init containers after istio-init would
// find no proxy for their traffic.
func order(pod *corev1.Pod, hold bool) {
	if hold {
		first(pod.Spec.Containers, ProxyContainer)
	} else {
		last(pod.Spec.Containers, ProxyContainer)
	}
	init := pod.Spec.InitContainers
	if index(init, ProxyContainer) >= 0 {
		for _, name := range []string{coreDumpContainer, ProxyContainer, validationContainer, initContainer} {
			first(init, name)
		}
		return
	}
	first(init, validationContainer)
	last(init, initContainer)
	last(init, coreDumpContainer)
}

func first(list []corev1.Container, name string) {
	if i := index(list, name); i > 0 {
		c := list[i]
		copy(list[1:i+1], list[:i])
		list[0] = c
	}
}

func last(list []corev1.Container, name string) {
	if i := index(list, name); i >= 0 {
		c := list[i]
		copy(list[i:], list[i+1:])
		list[len(list)-1] = c
	}
}
