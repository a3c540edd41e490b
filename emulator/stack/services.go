package stack

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/ethereum/go-ethereum/crypto"

	"github.com/fencepost/fencepost/emulator/fake/urlmap"
	"github.com/fencepost/fencepost/emulator/stack/processes"
	"github.com/fencepost/fencepost/emulator/stack/steps"
	"github.com/fencepost/fencepost/migrations"
	"github.com/fencepost/fencepost/shared/chain/devchain"
	"github.com/fencepost/fencepost/shared/config"
)

// publicRoutes are the public paths of the load balancer's URL map.
var publicRoutes = []urlmap.Route{
	{Pattern: "/api/v1/tx", Service: "create"},
	{Pattern: "/api/v1/tx:batch", Service: "create"},
	{Pattern: "/api/v1/tx/", Service: "query"},
	{Pattern: "/api/v1/tx/{txId}/cancel", Service: "cancel"},
	{Pattern: "/api/v1/events", Service: "query"},
	{Pattern: "/openapi.yaml", Service: "query"},
	{Pattern: "/errors/", Service: "query"},
	{Pattern: "/admin/v1/", Service: "admin"},
}

var transferRoutes = []urlmap.Route{
	{Pattern: "/api/v1/internal_transfer", Service: transferService},
	{Pattern: "/api/v1/internal_transfer/", Service: transferService},
	{Pattern: "/api/v1/payout", Service: transferService},
	{Pattern: "/api/v1/payout_address", Service: transferService},
	{Pattern: "/api/v1/accounts", Service: transferService},
	{Pattern: "/api/v1/payout_address/", Service: transferService},
}

// internalServices are called only by tasks and the scheduler.
var internalServices = []string{"advance", "receipt", "confirm", "resubmit", "sweep", "publish"}

// routes returns the public routes and the internal services.
func (s *Stack) routes() (public []urlmap.Route, internal []string) {
	public, internal = publicRoutes, internalServices
	if s.options.Transfers {
		public, internal = slices.Concat(public, transferRoutes), slices.Concat(internal, []string{transferService, conservationJob})
	}
	if s.options.Console {
		public = slices.Concat(public, consoleRoutes)
	}
	return public, internal
}

// all is the target that serves every function.
const all = migrations.EveryFunction

// functionsOf returns the functions deployed with a target.
func functionsOf(target string) []string {
	switch target {
	case transferService:
		return []string{"transfer", "transfer-step"}
	case conservationJob:
		return []string{"conservation", "conservation-full"}
	}
	return []string{target}
}

func (s *Stack) startURLMap(context.Context) {
	public, internal := s.routes()
	s.URLMap = steps.Value(urlmap.Start(urlmap.Options{Public: public, Internal: internal, PublicAddr: s.options.PublicAddr, Around: s.options.Around}))
	s.onStop(s.URLMap.Close)
	s.addConsoleSettings()
}

// service is a set of processes that serve the same functions.
type service struct {
	target    string
	functions []string // with routes to it
	pool      *processes.Pool
}

func (s *Stack) functionNames() []string {
	public, internal := s.routes()
	names := slices.Clone(internal)
	for _, r := range public {
		names = append(names, r.Service)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (s *Stack) startServices(ctx context.Context) {
	s.addSettings(ctx)
	c, err := config.LoadForTests(list(s.settings))
	if err != nil { // a process would say no more than its last line
		steps.Stopf("settings:\n%w", err)
	}
	s.createQueues(ctx, c)
	if s.options.Split {
		for _, name := range s.functionNames() {
			s.services = append(s.services, &service{target: name, functions: []string{name}})
		}
	} else {
		s.services = []*service{{target: all, functions: s.functionNames()}}
	}
	for _, svc := range s.services {
		settings := s.settingsOf(svc.target)
		if svc.target != all && svc.target != consoleService { // as in the deployment, each function has its own role
			s.roles[svc.target] = s.roleURL(ctx, svc.target)
			settings["FENCEPOST_DATABASE_URL"] = s.roles[svc.target]
		}
		s.startService(ctx, svc, list(settings))
	}
}

// callers are the functions that call the trading core.
var callers = []string{all, "admin", transferService, conservationJob}

// ofCallers are the settings that only they get.
var ofCallers = []string{
	"FENCEPOST_TRADING_URL", "FENCEPOST_TRADING_SECRET", "FENCEPOST_AUTH_USERS_ISSUER", "FENCEPOST_AUTH_USERS_JWKS_URL", "FENCEPOST_AUTH_USERS_AUDIENCE",
}

// nodeless are the functions that query no node. Only create among them reads the list of chains, for
// their ids.
var nodeless = []string{"cancel", "create", "publish", "query"}

// settingsOf returns a service's settings as deployed. Only callers of the trading core get its settings,
// and only functions that query nodes get the nodes' URLs.
func (s *Stack) settingsOf(target string) map[string]string {
	settings := maps.Clone(s.settings)
	if target == consoleService {
		maps.DeleteFunc(settings, func(name, _ string) bool { return !slices.Contains(ofConsole, name) })
		return settings
	}
	if s.options.Transfers && !slices.Contains(callers, target) {
		maps.DeleteFunc(settings, func(name, _ string) bool { return slices.Contains(ofCallers, name) })
	}
	if slices.Contains(nodeless, target) {
		delete(settings, "FENCEPOST_RPC_URLS")
		if target != "create" {
			delete(settings, "FENCEPOST_CHAINS")
		}
	}
	return settings
}

func (s *Stack) startService(ctx context.Context, svc *service, env []string) {
	svc.pool = steps.Value(processes.StartPool(ctx, processes.PoolOptions{
		Size: s.options.Processes,
		Spec: processes.Spec{
			Name: svc.target, Path: s.options.Binary, Env: append(slices.Clone(env), "FUNCTION_TARGET="+svc.target), Output: s.tell,
		},
		Started: func(p *processes.Process) {
			for _, f := range svc.functions {
				if err := s.URLMap.Add(f, p.Addr()); err != nil {
					s.options.Log.Error("add a backend", "error", err)
				}
			}
			s.options.Log.Info("function process started", "service", svc.target, "pid", p.PID(), "addr", p.Addr())
		},
		Ended: func(p *processes.Process, err error, unexpected bool) {
			for _, f := range svc.functions {
				s.URLMap.Remove(f, p.Addr())
			}
			if unexpected {
				s.options.Log.Warn("function process ended", "service", svc.target, "pid", p.PID(), "error", err)
			}
		},
	}))
	s.onStop(svc.pool.Stop)
}

// tell writes the functions' log lines one at a time, and counts their costs.
func (s *Stack) tell(line string) {
	s.Costs.read(line)
	s.write(line)
}

func (s *Stack) write(line string) {
	s.writing.Lock()
	defer s.writing.Unlock()
	fmt.Fprintln(s.options.Output, line)
}

// Processes returns the running function processes.
func (s *Stack) Processes() []*processes.Process {
	var list []*processes.Process
	for _, svc := range s.services {
		list = append(list, svc.pool.Processes()...)
	}
	return list
}

// DatabaseURLOf returns the function's database URL if each function has its own role, and "" otherwise.
func (s *Stack) DatabaseURLOf(function string) string { return s.roles[function] }

// Setting returns the value of the function processes' environment variable.
func (s *Stack) Setting(variable string) string { return s.settings[variable] }

// StartProcess starts one more process that serves every function, with the settings in addition. It is not
// replaced when it ends. The caller may stop it; [Stack.Close] does too.
func (s *Stack) StartProcess(ctx context.Context, settings map[string]string) (_ *processes.Process, err error) {
	defer steps.Return(&err)
	p := steps.Value(s.StartAside(ctx, settings))
	s.onStop(p.Stop)
	for _, f := range s.functionNames() {
		steps.OK(s.URLMap.Add(f, p.Addr()))
	}
	return p, nil
}

// StartAside starts one more process without a route, with the settings in addition. Its address is the
// only way to it. The caller ends it.
func (s *Stack) StartAside(ctx context.Context, settings map[string]string) (*processes.Process, error) {
	env := maps.Clone(s.settings)
	maps.Copy(env, settings)
	return processes.Start(ctx, processes.Spec{Name: "extra", Path: s.options.Binary, Env: list(env), Output: s.tell})
}

// addSettings adds the settings that come from several parts, and those of the options over all.
func (s *Stack) addSettings(ctx context.Context) {
	if s.options.WireProxy {
		s.startWireProxy(ctx)
	}
	maps.Copy(s.settings, map[string]string{
		"FENCEPOST_DATABASE_URL":           s.roleURL(ctx, all),
		"FENCEPOST_CHAIN_ID":               strconv.FormatUint(s.Chain.ChainID(), 10),
		"FENCEPOST_CHAIN_BLOCK_TIME":       s.options.BlockTime.String(),
		"FENCEPOST_CONFIRMATIONS_REQUIRED": "1",
		"FENCEPOST_TASKS_PROJECT":          project,
		"FENCEPOST_TASKS_LOCATION":         location,
		"FENCEPOST_TASKS_ENDPOINT":         s.Tasks.Addr(),
		"FENCEPOST_TASKS_TARGET_URL":       s.URLMap.InternalURL(),
		"FENCEPOST_TASKS_SERVICE_ACCOUNT":  TasksAccount,
		"FENCEPOST_OIDC_ISSUER":            s.Issuer.URL(),
		"FENCEPOST_OIDC_JWKS_URL":          s.Issuer.JWKSURL(),
		"FENCEPOST_AUTH_PUBLIC_AUDIENCE":   PublicAudience,
		"FENCEPOST_AUTH_INTERNAL_AUDIENCE": InternalAudience,
		"FENCEPOST_AUTH_INTERNAL_ACCOUNTS": TasksAccount + "," + SchedulerAccount,
		"FENCEPOST_AUTH_OPERATORS":         "email:" + OperatorAccount + ",email:" + SecondAccount,
		"FENCEPOST_TELEMETRY_PROMETHEUS":   "true",
		"CLOUD_RUN_TIMEOUT_SECONDS":        "60",
		// Without Cloud Run no load balancer bounds the concurrent requests of a process.
		"FENCEPOST_HTTP_MAX_REQUESTS_PER_CALLER": "2000",
	})
	if s.options.Window > 1 {
		s.settings["FENCEPOST_NONCE_STRICT_ENABLED"] = "false"
	}
	maps.Copy(s.settings, s.options.Settings)
}

// Environment returns the environment of every function process, in the form of [os.Environ]. A business'
// own program that posts requests gets the same.
func (s *Stack) Environment() []string { return list(s.settings) }

// list returns the environment in the form of [os.Environ].
func list(env map[string]string) (entries []string) {
	for name, value := range env {
		entries = append(entries, name+"="+value)
	}
	return entries
}

func keyOf(a devchain.Account) string {
	return "0x" + hex.EncodeToString(crypto.FromECDSA(a.Key))
}
