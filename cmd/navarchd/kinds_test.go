package main

import (
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/status"
)

// Each of Istio's kinds that records are made of has its status written: whoever adds a kind is told here that store/status lacks it.
func TestStatusOfEveryKind(t *testing.T) {
	for _, kind := range model.Kinds() {
		of := normal.SourceObject(model.Key{Kind: kind, Namespace: "shop", Name: "x"})
		if strings.HasSuffix(of.Group, ".istio.io") && !slices.Contains(status.IstioKinds, status.Kind{Group: of.Group, Kind: of.Kind}) {
			t.Errorf("%s of %s is not among status.IstioKinds", of.Kind, of.Group)
		}
	}
}
