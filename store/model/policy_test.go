package model

import (
	"slices"
	"testing"
)

// Header names with either separator are parsed as claims. Other names with the same prefix are malformed.
func TestRoutedClaim(t *testing.T) {
	for header, want := range map[string][]string{
		"@request.auth.claims.group": {"group"}, "@request.auth.claims.group.of": {"group", "of"}, "@Request.auth.claims.Group": {"Group"},
		"@request.auth.claims[group]": {"group"}, "@request.auth.claims[group][of.it]": {"group", "of.it"},
		"@request.auth.claims": nil, "@request.auth.claims.": nil, "@request.auth.claims[]": nil, "@request.auth.claims[a": nil,
	} {
		if path, named := RoutedClaim(header); !named || !slices.Equal(path, want) {
			t.Errorf("%s: %q, %v; want %q", header, path, named, want)
		}
	}
	for _, header := range []string{"x-user", "request.auth.claims.group", "@request"} {
		if path, named := RoutedClaim(header); named || path != nil {
			t.Errorf("%s: %q", header, path)
		}
	}
}
