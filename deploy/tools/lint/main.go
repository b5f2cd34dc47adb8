// Command lint holds the analyzers that `make check` runs beside go vet and staticcheck, for `go vet -vettool`: errorlint
// (errors are compared with errors.Is and errors.As, and wrapped with %w) and exhaustive (a switch on an enumeration names
// every member, or has a default).
//
// It is a module of its own, so that what it needs is no dependency of Navarch.
package main

import (
	"github.com/nishanths/exhaustive"
	"github.com/polyfloyd/go-errorlint/errorlint"
	"golang.org/x/tools/go/analysis/unitchecker"
)

// foreign are enumerations that a switch of ours names only a part of: their other members mean nothing to it.
const foreign = `^(crypto/|reflect\.|syscall\.|golang\.org/|google\.golang\.org/|github\.com/|istio\.io/)`

func main() {
	for name, value := range map[string]string{"default-signifies-exhaustive": "true", "ignore-enum-types": foreign,
		"ignore-enum-members": `\.(NumTypes|NumKinds|Unknown|KindInvalid)$`} { // the bounds of an enumeration are no members
		if err := exhaustive.Analyzer.Flags.Set(name, value); err != nil {
			panic(err) // a flag of another version
		}
	}
	unitchecker.Main(errorlint.NewAnalyzer(), exhaustive.Analyzer)
}
