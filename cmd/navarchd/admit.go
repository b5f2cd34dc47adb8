package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"navarch.io/navarch/ca/serving"
	"navarch.io/navarch/cmd/internal/web"
	"navarch.io/navarch/cmd/navarchd/judge"
	"navarch.io/navarch/cmd/navarchd/webhooks"
	"navarch.io/navarch/store/admit"
	"navarch.io/navarch/store/admit/schema"
	"navarch.io/navarch/store/admit/validate"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/turns"
)

// webhookLimits are the limits of the webhooks' address. API servers keep connections, and open one for each
// concurrent review. API servers do not repeat a review whose connection ends, and close a connection after 90 s
// without use. Idle is longer than 90 s, so that this process never closes a connection on which a review begins.
var webhookLimits = web.Limits{Body: 9 << 20, Connections: 1024, PerSource: 512, Idle: 3 * time.Minute}

// configurations adds the task that follows the cluster's webhook configurations, and returns these configurations. It
// returns nil without a cluster, without a source of the mesh's roots, or if the process has neither role admit nor
// role ingest. The error reports invalid settings of the access to the cluster.
func (a *assembly) configurations() (*webhooks.Configurations, error) {
	if a.api == nil || a.roots == nil || !a.config.has(roleAdmit) && !a.config.has(roleIngest) {
		return nil, nil
	}
	all, err := webhooks.New(webhooks.Config{Kubeconfig: a.config.kubeconfig,
		Namespace: a.config.env.podNamespace, Revision: a.config.env.revision, Log: a.scoped(obs.ScopeAdmit),
		Foreign: !a.config.writeWebhooks, Roots: func() []*x509.Certificate { return a.roots.State().Bundle }})
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig, --registries: %w", err)
	}
	a.add(part{tasks: []loop.Task{{Name: "webhook configurations", Run: all.Run}}, gauges: []func(time.Time){all.Gauges}})
	return all, nil
}

// addAdmit adds role admit, if the process has this role. In any case it returns the result of configurations, which
// role ingest needs too.
func (a *assembly) addAdmit() (*webhooks.Configurations, error) {
	if err := a.addRoots(); err != nil {
		return nil, err
	}
	all, err := a.configurations()
	if err != nil || !a.config.has(roleAdmit) {
		return all, err
	}
	return all, a.answerReviews(all)
}

// answerReviews adds the server of the webhooks, which answers admission reviews of the cluster's API servers. Every
// replica answers, whether or not it leads. Errors: no usable certificate is configured, --https-addr cannot be bound,
// or the mesh or the injector cannot be set up.
func (a *assembly) answerReviews(all *webhooks.Configurations) error {
	conf, err := a.webhookTLS(all)
	if err != nil {
		return err
	}
	log := a.scoped(obs.ScopeAdmit)
	reviews := admit.Config{Crashes: a.crashes, Log: log}
	if a.api != nil {
		servers := &apiServers{api: a.api, log: log}
		reviews.Ahead = servers.has
		a.add(part{tasks: []loop.Task{{Name: "addresses of API servers", Run: servers.run}}})
	}
	server := admit.New(reviews)
	if err := a.addMesh(); err != nil {
		return err
	}
	validate.New(normal.New(a.config.normal()), a.mesh, func() *mirror.Snapshot { return a.snapshot() },
		a.tenants.Find, judge.Record).Register(server)
	if err := a.addInjection(server); err != nil {
		return err
	}
	l, err := net.Listen("tcp", a.config.httpsAddr)
	if err != nil {
		return fmt.Errorf("--https-addr: %w", err)
	}
	log.Info("listening", obs.KeyListener, "webhooks, TLS", obs.KeyAddress, l.Addr().String())
	a.add(part{tasks: []loop.Task{
		{Name: "webhooks", Run: func(ctx context.Context) error {
			limits := webhookLimits
			limits.Leave = min(time.Second, a.config.shutdown/10) // during this time API servers move to other replicas
			return web.Serve(ctx, web.Handshakes(l, conf, turns.New(0, 0)), server, limits, obs.NewSampled(log))
		}},
		{Name: "definitions of Istio's kinds", Run: func(ctx context.Context) error {
			if err := schema.Compile(ctx); err != nil && ctx.Err() == nil {
				return err
			}
			<-ctx.Done()
			return nil
		}},
	}})
	return nil
}

// webhookTLS returns the webhooks' TLS configuration. If --tls-cert is set, the server presents this certificate, and
// its operator must write its root into the webhook configurations. Otherwise the server presents a certificate of the
// mesh's CA. It prefers a certificate that the webhook configurations trust. The error reports a missing or invalid
// certificate.
func (a *assembly) webhookTLS(all *webhooks.Configurations) (*tls.Config, error) {
	switch {
	case a.roots == nil && a.config.tlsCert == "":
		return nil, errors.New("--roles: role admit needs a certificate: --kek (the mesh's own CA), --tls-cert and --tls-key, or --ca-peers")
	case a.roots == nil:
		conf, err := serving.ByFiles(a.config.tlsCert, a.config.tlsKey, nil)
		if conf != nil {
			conf.NextProtos = []string{"http/1.1"}
		}
		return conf, err
	}
	trusted := func(*tls.Certificate) serving.Trust { return serving.Trust{Callers: true} }
	if all != nil && !a.serving.OwnFiles() {
		trusted = all.Trusts
	}
	held := serving.NewHeld(a.serving, a.roots.State, trusted)
	a.add(part{
		ready: []func() error{func() error {
			switch unbelieved, err := held.Missing(); {
			case err != nil && a.config.speaksGRPC() && a.config.grpcAddr != "", errors.Is(unbelieved, webhooks.ErrUnread):
				return nil // the process counts as ready; the note below reports the error
			default:
				return errors.Join(err, unbelieved)
			}
		}},
		notes: []func() []string{func() []string {
			if err := held.Waiting(); err != nil {
				return []string{err.Error()}
			}
			return nil
		}},
	})
	return held.Config(), nil
}
