package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/store/durable"
)

const (
	// gatewayWait is the default time limit of a gateway's drain. By default, Kubernetes kills a terminating Pod after
	// 30 s.
	gatewayWait = 25 * time.Second
	// quietTime is the time without connections after which a gateway's drain ends before its time limit.
	quietTime = time.Second
)

// isRouter reports whether the node is of type router.
func (i *identity) isRouter() bool { return strings.HasPrefix(i.node.GetId(), "router~") }

// completeGateway adapts parsed settings to a gateway. The parameter least is the value of the variable
// MINIMUM_DRAIN_DURATION, empty if it is not set.
func (f *shutdown) completeGateway(least string) {
	if least == "" {
		f.least = min(defaultWait, f.wait/2)
	}
	if !f.whenIdle {
		f.least = min(f.least, f.wait)
	}
}

// drainPath returns the path of the request that starts Envoy's graceful drain. A sidecar drains its inbound listeners
// only. A gateway drains all listeners, because all of them face clients, and its listeners stay open until Envoy ends.
func (f *shutdown) drainPath() string {
	if f.gateway {
		return "/drain_listeners?graceful&skip_exit"
	}
	return "/drain_listeners?inboundonly&graceful"
}

// drainEnvoy drains Envoy. It returns when Envoy may be stopped, at the latest when ctx ends.
func (a *agent) drainEnvoy(ctx context.Context) {
	if !a.cfg.bye.gateway {
		a.admin.drain(ctx, a.cfg.bye, a.log)
		return
	}
	d := gatewayDrain{admin: a.admin, shutdown: a.cfg.bye, endIdle: a.cfg.endIdle, log: a.log}
	d.run(ctx)
}

// gatewayDrain ends the connections of a gateway in two phases.
//
// In the first phase Envoy serves as before, because load balancers need a while to notice that the Pod is not ready.
// If the drain began at once, clients would reconnect to this Pod. In the second phase Envoy still accepts connections,
// but each response ends its connection (Connection: close, GOAWAY). Connections that are idle for idleAfter (1 s) end
// too.
type gatewayDrain struct {
	*admin
	shutdown
	endIdle func() error
	log     *slog.Logger
}

// run runs both phases. It returns when the drain is over, or when ctx ends.
func (d *gatewayDrain) run(ctx context.Context) {
	end := time.Now().Add(d.wait)
	d.log.Info("gateway keeps serving while load balancers notice that it is not ready", "for", d.least)
	pause(ctx, d.least)
	if err := d.drainListeners(ctx, d.drainPath()); err != nil && ctx.Err() == nil {
		d.log.Warn("cannot drain Envoy: connections end when it is stopped", "error", err)
	}
	if err := d.endIdle(); err != nil {
		d.log.Warn("cannot end idle connections: they end when Envoy is stopped", "error", err)
	}
	if d.whenIdle {
		d.log.Info("gateway ends its connections, without a limit of time")
	} else {
		d.log.Info("gateway ends its connections", "within", time.Until(end).Round(time.Millisecond))
	}
	d.await(ctx, end)
}

// await polls the numbers of open and accepted connections. Unless fullTime is set, it returns when no connection was
// open or accepted for quietTime. Unless whenIdle is set, it returns at the time given by the parameter end. It always
// returns when ctx ends. Accepted connections matter, because some clients open a connection for each request. Such a
// client has no open connection between two requests.
func (d *gatewayDrain) await(ctx context.Context, end time.Time) {
	last, since, warned := -1, time.Time{}, false
	for ; ctx.Err() == nil; pause(ctx, drainPoll) {
		active, accepted, err := d.connections(ctx)
		now := time.Now()
		if err != nil && !warned && ctx.Err() == nil {
			d.log.Warn("cannot read the number of Envoy's connections: the agent tries again until the drain ends", "error", err)
			warned = true
		}
		if err != nil || active > 0 || accepted != last {
			last, since = accepted, now
		}
		switch {
		case !d.whenIdle && !now.Before(end):
			d.log.Info("drain time is over, Envoy is stopped", "connections", active)
			return
		case d.fullTime:
		case now.Sub(since) >= quietTime:
			d.log.Info("drained, no connection is left")
			return
		}
	}
}

// idlePressure returns the path of the file by which the agent makes a gateway's Envoy end idle connections. Content 1
// ends idle connections, and content 0 does not. For a sidecar the path is empty.
func (o *options) idlePressure() string {
	if !o.bye.gateway {
		return ""
	}
	return filepath.Join(o.configPath, "idle-pressure")
}

// endIdle makes Envoy end connections that have been idle for idleAfter. Envoy notices the rename of the file. Errors
// are those of durable.ReplaceUnsynced.
func (o *options) endIdle() error {
	return durable.ReplaceUnsynced(o.idlePressure(), 0o644, []byte("1"))
}

// idleAfter is the idle timeout of clients' connections during the drain of a gateway.
const idleAfter = "1s"

const (
	overloadKey    = "overload_manager"
	pressureType   = "type.googleapis.com/envoy.extensions.resource_monitors.injected_resource.v3.InjectedResourceConfig"
	scaleTimerType = "type.googleapis.com/envoy.config.overload.v3.ScaleTimersOverloadActionConfig"
)

// idleOverload returns the configuration of the overload manager by which the agent ends idle connections. Without it,
// Envoy's drain ends a connection only with the connection's next response. An idle HTTP/2 connection would then
// receive no GOAWAY, and the drain would last until its time limit.
func idleOverload(file string) object {
	const monitor = "envoy.resource_monitors.injected_resource"
	return object{
		"refresh_interval":  "1s",
		"resource_monitors": []object{{"name": monitor, "typed_config": object{"@type": pressureType, "filename": file}}},
		"actions": []object{{
			"name":     "envoy.overload_actions.reduce_timeouts",
			"triggers": []object{{"name": monitor, "scaled": object{"scaling_threshold": 0.1, "saturation_threshold": 0.9}}},
			"typed_config": object{"@type": scaleTimerType, "timer_scale_factors": []object{
				{"timer": "HTTP_DOWNSTREAM_CONNECTION_IDLE", "min_timeout": idleAfter}}},
		}},
	}
}

// yieldOverload returns the bootstrap text. If patches conflict with the agent's overload manager, the result lacks
// this overload manager, because two overload managers cannot scale the same timers. Patches conflict if Envoy rejects
// the bootstrap with them, but accepts it after the agent's overload manager is removed. Only patches of the overload
// manager are tested.
func (a *agent) yieldOverload(ctx context.Context, text []byte, patches []agentapi.BootstrapPatch) []byte {
	theirs := slices.DeleteFunc(slices.Clone(patches), func(p agentapi.BootstrapPatch) bool { _, is := p.Merge[overloadKey]; return !is })
	if !a.cfg.bye.gateway || len(theirs) == 0 || a.accepts(ctx, text, theirs) {
		return text
	}
	without, err := merged(text, agentapi.BootstrapPatch{Merge: object{overloadKey: nil}})
	if err != nil || !a.accepts(ctx, without, theirs) {
		return text
	}
	a.log.Warn("a patch of the bootstrap replaces the agent's overload manager: idle connections end when Envoy is stopped",
		"patch", theirs[0].From)
	return without
}

// accepts reports whether Envoy accepts the bootstrap with the patches.
func (a *agent) accepts(ctx context.Context, text []byte, patches []agentapi.BootstrapPatch) bool {
	whole, err := merged(text, patches...)
	return err == nil && a.validateBootstrap(ctx, whole) == nil
}
