package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/store/durable"
	"navarch.io/navarch/store/loop"
)

// bootstrapKey is a key of the node's metadata. Its value bootstrapAsks declares that this agent requests patches of
// its bootstrap (from EnvoyFilters). If a patch selects a proxy without this key, the control plane reports the patch.
const bootstrapKey, bootstrapAsks = "NAVARCH_BOOTSTRAP", "xds"

// claimBootstrap sets bootstrapKey in the node's metadata.
func (i *identity) claimBootstrap() {
	i.node.Metadata.Fields[bootstrapKey] = structpb.NewStringValue(bootstrapAsks)
}

// patchBootstrap requests the patches of the bootstrap from the control plane. It adds the patches that Envoy accepts
// to the bootstrap file, with which Envoy then starts. It returns when bootstrapWait is over or ctx ends, at the
// latest. Failures are only logged.
func (a *agent) patchBootstrap(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.bootstrapWait)
	defer cancel()
	patches, err := a.askBootstrap(ctx)
	if err != nil {
		a.log.Warn("Envoy starts without patches of its bootstrap: the control plane has not sent them",
			"waited", a.cfg.bootstrapWait, "error", err)
		return
	}
	if len(patches) == 0 {
		return
	}
	if err := a.mergePatches(ctx, patches); err != nil {
		a.log.Warn("Envoy starts without patches of its bootstrap", "error", err)
	}
}

// askBootstrap requests the patches every 200 ms until the control plane answers or ctx ends. At the start of a machine
// the control plane, or the file of its roots, may not exist yet. The error is that of the last request.
func (a *agent) askBootstrap(ctx context.Context) ([]agentapi.BootstrapPatch, error) {
	const pause = 200 * time.Millisecond
	for {
		patches, err := a.up.bootstrap(ctx, a.id)
		if err == nil || loop.Pause(ctx, pause) != nil {
			return patches, err
		}
	}
}

// bootstrap requests the patches once, on a connection of its own. Errors: no credentials or metadata, a connection or
// stream that fails, or an answer that cannot be decoded.
func (u *upstream) bootstrap(ctx context.Context, id *identity) ([]agentapi.BootstrapPatch, error) {
	creds, err := u.credentials()
	if err != nil {
		return nil, err
	}
	md, err := u.metadata()
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(u.target, grpc.WithTransportCredentials(creds))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, md))
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return nil, err
	}
	request := &discoveryv3.DeltaDiscoveryRequest{
		Node: id.node, TypeUrl: agentapi.BootstrapURL, ResourceNamesSubscribe: []string{agentapi.BootstrapName},
	}
	if err := stream.Send(request); err != nil {
		return nil, err
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		for _, r := range response.GetResources() {
			if response.GetTypeUrl() == agentapi.BootstrapURL && r.GetName() == agentapi.BootstrapName {
				return agentapi.DecodeBootstrap(r.GetResource())
			}
		}
	}
}

// mergePatches writes the bootstrap with all patches. If Envoy does not accept the result, the patches are added one at
// a time. A patch that Envoy does not accept is logged and left out. After an error the file is unchanged. Errors: the
// file cannot be read, decoded or written, or ctx ends before Envoy has judged all patches.
func (a *agent) mergePatches(ctx context.Context, patches []agentapi.BootstrapPatch) error {
	text, err := os.ReadFile(a.cfg.bootstrapFile())
	if err != nil {
		return err
	}
	text = a.yieldOverload(ctx, text, patches)
	good, err := merged(text, patches...)
	if err != nil {
		return err
	}
	if a.validateBootstrap(ctx, good) != nil {
		good = text
		for _, p := range patches {
			next, err := merged(good, p)
			if err == nil {
				err = a.validateBootstrap(ctx, next)
			}
			if ctx.Err() != nil { // Envoy did not judge the patch
				return ctx.Err()
			}
			if err != nil {
				a.log.Error("a patch of the bootstrap is left out: Envoy refuses the patched bootstrap", "patch", p.From, "error", err)
				continue
			}
			good = next
		}
	}
	return durable.ReplaceUnsynced(a.cfg.bootstrapFile(), 0o644, good)
}

// validateBootstrap makes Envoy validate a bootstrap (--mode validate). The error contains the first 500 characters of
// Envoy's output, or is the error of ctx or of the temporary file.
func (a *agent) validateBootstrap(ctx context.Context, text []byte) error {
	file := strings.TrimSuffix(a.cfg.bootstrapFile(), ".json") + ".patched.json"
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return err
	}
	defer func() { _ = os.Remove(file) }()
	args := []string{"--mode", "validate", "-c", file, "--disable-hot-restart", "-l", "error"}
	out, err := exec.CommandContext(ctx, a.envoy.path, args...).CombinedOutput()
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%w: %.500s", err, bytes.TrimSpace(out))
	}
	return nil
}

// merged returns a bootstrap with the patches merged into it, by the rules of agentapi.BootstrapPatch. The error
// reports that text is not a JSON object.
func merged(text []byte, patches ...agentapi.BootstrapPatch) ([]byte, error) {
	var whole object
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // keeps large numbers exact
	if err := decoder.Decode(&whole); err != nil {
		return nil, err
	}
	if whole == nil {
		return nil, errors.New("the bootstrap is no object")
	}
	for _, p := range patches {
		merge(whole, p.Merge)
	}
	return json.MarshalIndent(whole, "", " ")
}

// merge merges a patch into an object. A null deletes the key, lists are appended and objects are merged. An object
// with a key @type replaces the present object. Other values replace the present value.
func merge(into, patch object) {
	for _, key := range slices.Sorted(maps.Keys(patch)) {
		switch value := patch[key].(type) {
		case nil:
			delete(into, key)
		case []any:
			have, _ := into[key].([]any)
			into[key] = append(slices.Clip(have), value...)
		case object:
			have, is := into[key].(object)
			if _, whole := value["@type"]; !is || whole {
				have = object{}
				into[key] = have
			}
			merge(have, value)
		default:
			into[key] = value
		}
	}
}
