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

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"navarch.io/navarch/cmd/navarchctl/hooks"
	"navarch.io/navarch/store/admit/configure"
)

// hook is one webhook. The field named of is the webhook's configuration.
type hook struct {
	of hooks.Configuration
	hooks.Webhook
}

// String returns "KIND CONFIGURATION, WEBHOOK".
func (h hook) String() string { return fmt.Sprintf("%s %s, %s", h.of.Kind, h.of.Meta.Name, h.Name) }

// configurations returns all webhook configurations of the cluster that have a revision label. It returns an error if
// the request to the API server fails.
func (k *checker) configurations(ctx context.Context) ([]hooks.Configuration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return hooks.OfRevisions(ctx, k.API)
}

// hooks returns the webhooks that call a Service in the control plane's namespace. If a revision is selected, it
// returns only the webhooks of this revision. It returns the error of the method configurations.
func (k *checker) hooks(ctx context.Context) (own []hook, err error) {
	all, err := k.configurations(ctx)
	for _, c := range all {
		for _, w := range c.Webhooks {
			if w.LeadsTo(k.Namespace) && (k.Revision == "" || c.Revision() == k.Revision) {
				own = append(own, hook{c, w})
			}
		}
	}
	return own, err
}

// webhooks checks each webhook of the control plane: its Service, and whether the caBundle verifies the replicas'
// certificates. It also makes the API server call the webhooks in dry runs (method called).
func (k *checker) webhooks(ctx context.Context) {
	all, err := k.hooks(ctx)
	if err != nil {
		k.cannot(NameWebhooks.of("webhooks"), err)
		return
	}
	kinds := map[string]bool{}
	for _, h := range all {
		kinds[h.of.Kind] = true
		if do, err := k.webhook(ctx, h); err != nil {
			k.add(NameWebhooks.of(h.String()), Failure, err.Error(), do)
			continue
		}
		if h.of.Kind == hooks.Validating && h.Ignores && !configure.WarnsOnly(h.Name) {
			k.add(NameWebhooks.of(h.String()), Warning,
				"wrong objects pass while it does not answer (failurePolicy Ignore)", k.issuer().failurePolicy())
			continue
		}
		k.add(NameWebhooks.of(h.String()), OK,
			fmt.Sprintf("%d replicas answer with a certificate that the API server accepts", len(k.processes("admit"))), "")
	}
	k.called(ctx, all)
	for kind, what := range map[string]string{hooks.Mutating: "Pods get no proxies", hooks.Validating: "wrong objects are not refused"} {
		if !kinds[kind] {
			k.add(NameWebhooks.of(kind), Warning, fmt.Sprintf("no webhook calls a Service in namespace %s: %s", k.Namespace, what),
				"let the chart make it (injection.enabled, validation.enabled)")
		}
	}
}

// webhook checks one webhook. The error describes the first fault. The result named do is the advice for mending this
// fault.
func (k *checker) webhook(ctx context.Context, h hook) (do string, err error) {
	s := h.Client.Service
	at := fmt.Sprintf("Service %s/%s", s.Namespace, s.Name)
	var service corev1.Service
	if err := k.get(ctx, "/api/v1/namespaces/"+url.PathEscape(s.Namespace)+"/services/"+url.PathEscape(s.Name), &service); err != nil {
		return "make the Service, or remove the configuration: " + h.of.Meta.Name, fmt.Errorf("%s, which the webhook calls: %w", at, err)
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
	if !roots.AppendCertsFromPEM(h.Client.CABundle) {
		return k.issuer().bundle(), errors.New("caBundle is empty")
	}
	answering := k.processes("admit")
	if len(answering) == 0 {
		return "see the line about replicas", errNoReplica
	}
	target := int(service.Spec.Ports[i].TargetPort.IntVal)
	if target == 0 { // the port has a name, which is not resolved here
		target = 15017
	}
	conf := &tls.Config{RootCAs: roots, ServerName: s.Name + "." + s.Namespace + ".svc", MinVersion: tls.VersionTLS12}
	for _, r := range answering {
		if err := handshake(ctx, r.Replica, target, conf); err != nil {
			return k.issuer().bundle(), fmt.Errorf("%s, port %d, as the API server would: %w", r.Name, target, err)
		}
	}
	return "", nil
}

// ready counts the ready endpoints of a Service.
func (k *checker) ready(ctx context.Context, namespace, service string) (n int, err error) {
	var slices discoveryv1.EndpointSliceList
	path := "/apis/discovery.k8s.io/v1/namespaces/" + url.PathEscape(namespace) +
		"/endpointslices?labelSelector=" + url.QueryEscape(discoveryv1.LabelServiceName+"="+service)
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

// handshake performs a TLS handshake with a replica, as an API server with this configuration would.
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

// abandoned reports webhooks that call a Service in the control plane's namespace although their revision has no Pods.
func (k *checker) abandoned(ctx context.Context, pods map[string][]corev1.Pod) {
	all, err := k.hooks(ctx)
	if err != nil {
		return // the checks of each revision report this error
	}
	for _, h := range all {
		if revision := h.of.Revision(); len(pods[revision]) == 0 {
			k.add(NameWebhooks.of(h.String()), Failure, "belongs to revision "+revision+
				", which has no Pods here: by its failurePolicy, API servers refuse matching requests, or accept them unchecked",
				"install that revision, or remove what it left: navarchctl uninstall --revision "+revision)
		}
	}
}

// others reports which control planes have webhooks before an installation. If the revision to be installed has
// webhooks, the result is a warning.
func (k *checker) others(ctx context.Context) {
	check := NameOthers.of("existing control planes")
	all, err := k.configurations(ctx)
	if err != nil {
		k.cannot(check, err)
		return
	}
	var same, other []string
	for _, c := range all {
		if c.Revision() == k.revision() {
			same = append(same, c.Meta.Name)
		} else {
			other = append(other, c.Revision())
		}
	}
	slices.Sort(same)
	slices.Sort(other)
	same, other = slices.Compact(same), slices.Compact(other)
	switch check = check.count(len(same)); {
	case len(same) > 0:
		k.add(check, Warning, fmt.Sprintf("revision %s has webhooks: %s", k.revision(), strings.Join(same, ", ")),
			"take a revision of your own (--revision, the chart's revision), or see deploy/docs/beside-istiod.md to take this one over")
	case len(other) > 0:
		k.add(check, OK, "of other revisions: "+strings.Join(other, ", "), "")
	default:
		k.add(check, OK, "none", "")
	}
}
