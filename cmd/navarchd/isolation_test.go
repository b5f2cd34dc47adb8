package main

import (
	"fmt"
	"strings"
	"testing"
)

// The lists of isolation are read as hosts in lower case and ranges; whatever cannot be read is refused with the
// flag's name.
func TestIsolationFlags(t *testing.T) {
	for text, want := range map[string]string{
		"*.Pay.Example.com.=pay, web.example.com=navarch.io/tenant=web": "map[*.pay.example.com:pay web.example.com:navarch.io/tenant=web]",
		"":                            "map[]",
		"pay.example.com":             "--tenant-hosts: \"pay.example.com\"; want HOST=TENANT",
		"=pay":                        "want HOST=TENANT",
		"pay.example.com=":            "want HOST=TENANT",
		"a.example=pay,A.example=web": "--tenant-hosts: a.example is listed twice",
	} {
		i := isolated{given: strings.FieldsFunc(text, func(r rune) bool { return r == ',' })}
		got := fmt.Sprint(i.read(), " ", i.settings.Given)
		if !strings.Contains(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	i := isolated{ranges: []string{"10.96.0.0/12", "10.300.0.0/16"}}
	if err := i.read(); err == nil || !strings.HasPrefix(err.Error(), "--cluster-ranges: ") {
		t.Errorf("ranges: %v", err)
	}
}
