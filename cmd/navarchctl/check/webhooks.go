package check

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"istio.io/api/label"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

const admission = "/apis/admissionregistration.k8s.io/v1/"

// hook is one webhook of a configuration.
type hook struct {
	of, kind, revision, name string
	client                   admissionregistrationv1.WebhookClientConfig
	failure                  admissionregistrationv1.FailurePolicyType
}

func (h hook) String() string { return fmt.Sprintf("%s %s, %s", h.kind, h.of, h.name) }

// hooks are all webhooks of a cluster that are Istio's by their configuration's labels: with a revision, and called istiod or sidecar-injector.
func (k *checker) hooks(ctx context.Context) (all []hook, err error) {
	fails := func(p *admissionregistrationv1.FailurePolicyType) admissionregistrationv1.FailurePolicyType {
		if p == nil {
			return admissionregistrationv1.Fail
		}
		return *p
	}
	var mutating admissionregistrationv1.MutatingWebhookConfigurationList
	if err := k.get(ctx, admission+"mutatingwebhookconfigurations", &mutating); err != nil {
		return nil, err
	}
	for _, c := range mutating.Items {
		for _, w := range c.Webhooks {
			all = append(all, hook{c.Name, "MutatingWebhookConfiguration", c.Labels[label.IoIstioRev.Name], w.Name, w.ClientConfig, fails(w.FailurePolicy)})
		}
	}
	var validating admissionregistrationv1.ValidatingWebhookConfigurationList
	if err := k.get(ctx, admission+"validatingwebhookconfigurations", &validating); err != nil {
		return nil, err
	}
	for _, c := range validating.Items {
		for _, w := range c.Webhooks {
			all = append(all, hook{c.Name, "ValidatingWebhookConfiguration", c.Labels[label.IoIstioRev.Name], w.Name, w.ClientConfig, fails(w.FailurePolicy)})
		}
	}
	return slices.DeleteFunc(all, func(h hook) bool { return h.revision == "" }), nil
}

// webhooks looks at those of the control plane: whether the API server reaches a replica by them, and believes it.
func (k *checker) webhooks(ctx context.Context) {
	all, err := k.hooks(ctx)
	if err != nil {
		k.cannot("webhooks", err)
		return
	}
	kinds := map[string]bool{}
	for _, h := range all {
		if s := h.client.Service; s == nil || s.Namespace != k.Namespace || k.Revision != "" && h.revision != k.Revision {
			continue
		}
		kinds[h.kind] = true
		if do, err := k.webhook(ctx, h); err != nil {
			k.say(h.String(), Failure, err.Error(), do)
			continue
		}
		if h.kind == "ValidatingWebhookConfiguration" && h.failure == admissionregistrationv1.Ignore {
			k.say(h.String(), Warning, "wrong objects pass while it does not answer (failurePolicy Ignore)", "the leader sets Fail once its dry run was refused: /debug/problems of the leader says what is missing")
			continue
		}
		k.say(h.String(), OK, fmt.Sprintf("%d replicas answer, with a certificate that the API server believes", len(k.replicas)), "")
	}
	for kind, what := range map[string]string{"MutatingWebhookConfiguration": "Pods get no proxies", "ValidatingWebhookConfiguration": "wrong objects are not refused"} {
		if !kinds[kind] {
			k.say(kind, Warning, fmt.Sprintf("none leads to namespace %s: %s", k.Namespace, what), "let the chart make it (injection.enabled, validation.enabled)")
		}
	}
}

// webhook says what is wrong with one, and what to do.
func (k *checker) webhook(ctx context.Context, h hook) (do string, err error) {
	s := h.client.Service
	at := fmt.Sprintf("Service %s/%s", s.Namespace, s.Name)
	var service corev1.Service
	if err := k.get(ctx, "/api/v1/namespaces/"+url.PathEscape(s.Namespace)+"/services/"+url.PathEscape(s.Name), &service); err != nil {
		return "make the Service, or remove the configuration: " + h.of, fmt.Errorf("%s, to which it leads: %w", at, err)
	}
	port := int32(443)
	if s.Port != nil {
		port = *s.Port
	}
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port })
	if i < 0 {
		return "give the Service that port, to 15017", fmt.Errorf("%s has no port %d", at, port)
	}
	if n, err := k.ready(ctx, s.Namespace, s.Name); err != nil || n == 0 {
		return "see the Service's selector, and whether Pods are ready", errors.Join(err, fmt.Errorf("%s has no ready endpoint", at))
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(h.client.CABundle) {
		return "the leader writes it: see the leader's log, and --write-webhook-configurations", errors.New("caBundle is empty")
	}
	if len(k.replicas) == 0 {
		return "see the line about replicas", errNoReplica
	}
	target := int(service.Spec.Ports[i].TargetPort.IntVal)
	if target == 0 { // a name, which is not resolved here
		target = 15017
	}
	conf := &tls.Config{RootCAs: roots, ServerName: s.Name + "." + s.Namespace + ".svc", MinVersion: tls.VersionTLS12}
	for _, r := range k.replicas {
		if err := handshake(ctx, r, target, conf); err != nil {
			return "the leader writes the mesh's roots into caBundle: see the leader's log, and the replica's", fmt.Errorf("%s, port %d, as the API server would: %w", r.Name, target, err)
		}
	}
	return "", nil
}

// ready is how many ready endpoints a Service has.
func (k *checker) ready(ctx context.Context, namespace, service string) (n int, err error) {
	var slices discoveryv1.EndpointSliceList
	path := "/apis/discovery.k8s.io/v1/namespaces/" + url.PathEscape(namespace) + "/endpointslices?labelSelector=" + url.QueryEscape(discoveryv1.LabelServiceName+"="+service)
	if err := k.get(ctx, path, &slices); err != nil {
		return 0, err
	}
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				n++
			}
		}
	}
	return n, nil
}

// handshake connects to a replica as an API server with this configuration would.
func handshake(ctx context.Context, r Replica, port int, conf *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := r.Dial(ctx, port)
	if err != nil {
		return err
	}
	defer conn.Close()
	return tls.Client(conn, conf).HandshakeContext(ctx)
}

// others says which webhooks of other control planes are there, before one of ours is.
func (k *checker) others(ctx context.Context) {
	const check = "control planes that are there"
	all, err := k.hooks(ctx)
	if err != nil {
		k.cannot(check, err)
		return
	}
	var same, other []string
	for _, h := range all {
		if h.revision == k.revision() {
			same = append(same, h.of)
		} else {
			other = append(other, h.revision)
		}
	}
	slices.Sort(same)
	slices.Sort(other)
	same, other = slices.Compact(same), slices.Compact(other)
	switch {
	case len(same) > 0:
		k.say(check, Warning, fmt.Sprintf("revision %s has webhooks: %s", k.revision(), strings.Join(same, ", ")),
			"take a revision of your own (--revision, the chart's revision), or see deploy/docs/migration.md to take this one over")
	case len(other) > 0:
		k.say(check, OK, "of other revisions: "+strings.Join(other, ", "), "")
	default:
		k.say(check, OK, "none", "")
	}
}
