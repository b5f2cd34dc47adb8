package main

import (
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/xds"
)

// planned is a view with a set of its own.
type planned struct {
	serve.Proxy
	set manifest.Set
}

func (p *planned) Set() *manifest.Set { return &p.set }

// Every agent gets an answer. Agents without patches get one resource that all of them share.
func TestBootstrapPatches(t *testing.T) {
	agent, err := bootstrapPatches()
	if err != nil {
		t.Fatal(err)
	}
	one, other := agent.Resource(serve.Client{}, &planned{}), agent.Resource(serve.Client{}, &planned{})
	patches, err := agentapi.DecodeBootstrap(one.Body())
	if one != other || len(patches) != 0 || err != nil {
		t.Errorf("without patches: %v, %v", patches, err)
	}
	message, err := agentapi.EncodeBootstrap([]agentapi.BootstrapPatch{{From: "f", Merge: map[string]any{"a": nil}}})
	if err != nil {
		t.Fatal(err)
	}
	body, err := anypb.New(message)
	if err != nil {
		t.Fatal(err)
	}
	r, err := xds.EncodeAny(agentapi.BootstrapName, body)
	if err != nil {
		t.Fatal(err)
	}
	patches, err = agentapi.DecodeBootstrap(agent.Resource(serve.Client{}, &planned{set: manifest.Set{Bootstrap: r}}).Body())
	if err != nil || len(patches) != 1 || patches[0].From != "f" {
		t.Errorf("with one patch: %v, %v", patches, err)
	}
	if _, has := patches[0].Merge["a"]; !has {
		t.Error("what is taken away is lost on the way")
	}
}
