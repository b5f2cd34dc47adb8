module navarch.io/navarch/deploy/tools/lint

go 1.26.0

require (
	github.com/nishanths/exhaustive v0.12.0
	github.com/polyfloyd/go-errorlint v1.8.0
	golang.org/x/tools v0.51.0
)

require golang.org/x/sync v0.23.0 // indirect
