2envoyJÉ
*envoy.filters.connection_pools.tcp.genericenvoy.upstreams2Denvoy.extensions.upstreams.tcp.generic.v3.GenericConnectionPoolProtoJP
envoy.cluster.dnsenvoy.clusters2+envoy.extensions.clusters.dns.v3.DnsClusterJ#
envoy.cluster.edsenvoy.clustersJ+
envoy.cluster.logical_dnsenvoy.clustersJj
envoy.cluster.original_dstenvoy.clusters2<envoy.extensions.clusters.original_dst.v3.OriginalDstClusterJ&
envoy.cluster.staticenvoy.clustersJ*
envoy.cluster.strict_dnsenvoy.clustersJ`
envoy.clusters.aggregateenvoy.clusters24envoy.extensions.clusters.aggregate.v3.ClusterConfigJ`
envoy.clusters.compositeenvoy.clusters24envoy.extensions.clusters.composite.v3.ClusterConfigJx
$envoy.clusters.dynamic_forward_proxyenvoy.clusters2@envoy.extensions.clusters.dynamic_forward_proxy.v3.ClusterConfigJl
envoy.clusters.dynamic_modulesenvoy.clusters2:envoy.extensions.clusters.dynamic_modules.v3.ClusterConfigJn
envoy.clusters.mcp_multiclusterenvoy.clusters2;envoy.extensions.clusters.mcp_multicluster.v3.ClusterConfigJ]
envoy.clusters.redisenvoy.clusters25envoy.extensions.clusters.redis.v3.RedisClusterConfigJÉ
!envoy.clusters.reverse_connectionenvoy.clusters2Nenvoy.extensions.clusters.reverse_connection.v3.ReverseConnectionClusterConfigJ£
'envoy.filters.thrift.header_to_metadataenvoy.thrift_proxy.filters2\envoy.extensions.filters.network.thrift_proxy.filters.header_to_metadata.v3.HeaderToMetadataJ¶
(envoy.filters.thrift.payload_to_metadataenvoy.thrift_proxy.filters2^envoy.extensions.filters.network.thrift_proxy.filters.payload_to_metadata.v3.PayloadToMetadataJã
envoy.filters.thrift.rate_limitenvoy.thrift_proxy.filters2Lenvoy.extensions.filters.network.thrift_proxy.filters.ratelimit.v3.RateLimitJy
envoy.filters.thrift.routerenvoy.thrift_proxy.filters2>envoy.extensions.filters.network.thrift_proxy.router.v3.RouterJ¢
)envoy.tls.certificate_mappers.static_name&envoy.tls.upstream_certificate_mappers2Menvoy.extensions.transport_sockets.tls.cert_mappers.static_name.v3.StaticNameJª
<envoy.tls.upstream_certificate_mappers.filter_state_override&envoy.tls.upstream_certificate_mappers2Senvoy.extensions.transport_sockets.tls.cert_mappers.filter_state_override.v3.ConfigJ$
autoenvoy.thrift_proxy.protocolsJ&
binaryenvoy.thrift_proxy.protocolsJ1
binary/non-strictenvoy.thrift_proxy.protocolsJ'
compactenvoy.thrift_proxy.protocolsJ'
twitterenvoy.thrift_proxy.protocolsJ4
envoy.ai.llm_protocol.requestfilter_state.objectJ-
envoy.ai.model.requestfilter_state.objectJ!

envoy.boolfilter_state.objectJC
,envoy.filters.listener.original_dst.local_ipfilter_state.objectJD
-envoy.filters.listener.original_dst.remote_ipfilter_state.objectJ,
envoy.hashable_stringfilter_state.objectJ:
#envoy.network.application_protocolsfilter_state.objectJ'
envoy.network.ipfilter_state.objectJ6
envoy.network.network_namespacefilter_state.objectJH
1envoy.network.transport_socket.http_11_proxy.infofilter_state.objectJJ
3envoy.network.transport_socket.original_dst_addressfilter_state.objectJ9
"envoy.network.upstream_server_namefilter_state.objectJ?
(envoy.network.upstream_subject_alt_namesfilter_state.objectJ2
envoy.ratelimit.hits_addendfilter_state.objectJ0
envoy.router.debug_configfilter_state.objectJ#
envoy.stringfilter_state.objectJ.
envoy.tcp_proxy.clusterfilter_state.objectJ8
!envoy.tcp_proxy.disable_tunnelingfilter_state.objectJE
.envoy.tcp_proxy.per_connection_idle_timeout_msfilter_state.objectJ2
envoy.upstream.dynamic_hostfilter_state.objectJ2
envoy.upstream.dynamic_portfilter_state.objectJ.
envoy.rds_factory.defaultenvoy.rds_factoryJÇ
!envoy.tls.certificate_mappers.snienvoy.tls.certificate_mappers2>envoy.extensions.transport_sockets.tls.cert_mappers.sni.v3.SNIJô
)envoy.tls.certificate_mappers.static_nameenvoy.tls.certificate_mappers2Menvoy.extensions.transport_sockets.tls.cert_mappers.static_name.v3.StaticNameJÅ
envoy.bootstrap.dynamic_modulesenvoy.bootstrap2Menvoy.extensions.bootstrap.dynamic_modules.v3.DynamicModuleBootstrapExtensionJv
!envoy.bootstrap.internal_listenerenvoy.bootstrap2@envoy.extensions.bootstrap.internal_listener.v3.InternalListenerJ¬
:envoy.bootstrap.reverse_tunnel.downstream_socket_interfaceenvoy.bootstrap2senvoy.extensions.bootstrap.reverse_tunnel.downstream_socket_interface.v3.DownstreamReverseConnectionSocketInterfaceJº
8envoy.bootstrap.reverse_tunnel.upstream_socket_interfaceenvoy.bootstrap2oenvoy.extensions.bootstrap.reverse_tunnel.upstream_socket_interface.v3.UpstreamReverseConnectionSocketInterfaceJM
envoy.bootstrap.wasmenvoy.bootstrap2$envoy.extensions.wasm.v3.WasmServiceJö
Benvoy.extensions.network.socket_interface.default_socket_interfaceenvoy.bootstrap2Cenvoy.extensions.network.socket_interface.v3.DefaultSocketInterfaceJÇ
1envoy.extensions.network.socket_interface.sockmapenvoy.bootstrap2<envoy.extensions.network.socket_interface.sockmap.v3.SockmapJå
%envoy.health_checkers.dynamic_modulesenvoy.health_checkers2Lenvoy.extensions.health_checkers.dynamic_modules.v3.DynamicModuleHealthCheckJe
envoy.health_checkers.grpcenvoy.health_checkers20envoy.config.core.v3.HealthCheck.GrpcHealthCheckJe
envoy.health_checkers.httpenvoy.health_checkers20envoy.config.core.v3.HealthCheck.HttpHealthCheckJe
envoy.health_checkers.redisenvoy.health_checkers2/envoy.extensions.health_checkers.redis.v3.RedisJc
envoy.health_checkers.tcpenvoy.health_checkers2/envoy.config.core.v3.HealthCheck.TcpHealthCheckJh
envoy.health_checkers.thriftenvoy.health_checkers21envoy.extensions.health_checkers.thrift.v3.ThriftJj
envoy.health_checkers.udpenvoy.health_checkers26envoy.extensions.health_checkers.udp.v3.UdpHealthCheckJê
"envoy.health_check.event_sink.fileenvoy.health_check.event_sinks2Jenvoy.extensions.health_check.event_sinks.file.v3.HealthCheckEventFileSinkJ%
autoenvoy.thrift_proxy.transportsJ'
framedenvoy.thrift_proxy.transportsJ'
headerenvoy.thrift_proxy.transportsJ)
unframedenvoy.thrift_proxy.transportsJ€
7envoy.extensions.http.ext_proc.mapped_attribute_builder0envoy.http.ext_proc.processing_request_modifiers2nenvoy.extensions.http.ext_proc.processing_request_modifiers.mapped_attribute_builder.v3.MappedAttributeBuilderJÖ
 envoy.network.dns_resolver.caresenvoy.network.dns_resolver2Eenvoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfigJó
&envoy.network.dns_resolver.getaddrinfoenvoy.network.dns_resolver2Qenvoy.extensions.network.dns_resolver.getaddrinfo.v3.GetAddrInfoDnsResolverConfigJã
"envoy.network.dns_resolver.hickoryenvoy.network.dns_resolver2Ienvoy.extensions.network.dns_resolver.hickory.v3.HickoryDnsResolverConfigJ
envoy.ipenvoy.resolversJ5
"envoy.resolvers.reverse_connectionenvoy.resolversJµ
0envoy.http.early_header_mutation.dynamic_modules envoy.http.early_header_mutation2_envoy.extensions.http.early_header_mutation.dynamic_modules.v3.DynamicModuleEarlyHeaderMutationJ£
0envoy.http.early_header_mutation.header_mutation envoy.http.early_header_mutation2Menvoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutationJy
"envoy.http.ai_filters.request_infoenvoy.http.ai_filters2<envoy.extensions.http.ai_filters.request_info.v3.RequestInfoJà
'envoy.http.ai_filters.schema_validationenvoy.http.ai_filters2Fenvoy.extensions.http.ai_filters.schema_validation.v3.SchemaValidationJt
 envoy.http.ai_filters.transcoderenvoy.http.ai_filters29envoy.extensions.http.ai_filters.transcoder.v3.TranscoderJ+
envoy.bandwidth_limitenvoy.filters.httpJ"
envoy.bufferenvoy.filters.httpJ 

envoy.corsenvoy.filters.httpJ 

envoy.csrfenvoy.filters.httpJ%
envoy.ext_authzenvoy.filters.httpJ$
envoy.ext_procenvoy.filters.httpJ◊
-envoy.extensions.filters.http.dynamic_modulesenvoy.filters.http2Denvoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter2Lenvoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilterPerRouteJ!
envoy.faultenvoy.filters.httpJV
envoy.filters.http.a2aenvoy.filters.http2(envoy.extensions.filters.http.a2a.v3.A2aJà
'envoy.filters.http.adaptive_concurrencyenvoy.filters.http2Ienvoy.extensions.filters.http.adaptive_concurrency.v3.AdaptiveConcurrencyJ
$envoy.filters.http.admission_controlenvoy.filters.http2Cenvoy.extensions.filters.http.admission_control.v3.AdmissionControlJ‘
&envoy.filters.http.ai_protocol_managerenvoy.filters.http2Fenvoy.extensions.filters.http.ai_protocol_manager.v3.AiProtocolManager2Nenvoy.extensions.filters.http.ai_protocol_manager.v3.AiProtocolManagerPerRouteJã
,envoy.filters.http.alternate_protocols_cacheenvoy.filters.http2Genvoy.extensions.filters.http.alternate_protocols_cache.v3.FilterConfigJ±
envoy.filters.http.api_key_authenvoy.filters.http28envoy.extensions.filters.http.api_key_auth.v3.ApiKeyAuth2@envoy.extensions.filters.http.api_key_auth.v3.ApiKeyAuthPerRouteJç
)envoy.filters.http.aws_eventstream_parserenvoy.filters.http2Lenvoy.extensions.filters.http.aws_eventstream_parser.v3.AwsEventstreamParserJ£
envoy.filters.http.aws_lambdaenvoy.filters.http22envoy.extensions.filters.http.aws_lambda.v3.Config2:envoy.extensions.filters.http.aws_lambda.v3.PerRouteConfigJ‘
&envoy.filters.http.aws_request_signingenvoy.filters.http2Fenvoy.extensions.filters.http.aws_request_signing.v3.AwsRequestSigning2Nenvoy.extensions.filters.http.aws_request_signing.v3.AwsRequestSigningPerRouteJy
"envoy.filters.http.bandwidth_limitenvoy.filters.http2?envoy.extensions.filters.http.bandwidth_limit.v3.BandwidthLimitJy
"envoy.filters.http.bandwidth_shareenvoy.filters.http2?envoy.extensions.filters.http.bandwidth_share.v3.BandwidthShareJ©
envoy.filters.http.basic_authenvoy.filters.http25envoy.extensions.filters.http.basic_auth.v3.BasicAuth2=envoy.extensions.filters.http.basic_auth.v3.BasicAuthPerRouteJx
"envoy.filters.http.body_size_limitenvoy.filters.http2>envoy.extensions.filters.http.body_size_limit.v3.BodySizeLimitJó
envoy.filters.http.bufferenvoy.filters.http2.envoy.extensions.filters.http.buffer.v3.Buffer26envoy.extensions.filters.http.buffer.v3.BufferPerRouteJb
envoy.filters.http.cacheenvoy.filters.http22envoy.extensions.filters.http.cache.v3.CacheConfigJj
envoy.filters.http.cache_v2envoy.filters.http27envoy.extensions.filters.http.cache_v2.v3.CacheV2ConfigJj
envoy.filters.http.cdn_loopenvoy.filters.http27envoy.extensions.filters.http.cdn_loop.v3.CdnLoopConfigJ¶
envoy.filters.http.compositeenvoy.filters.http24envoy.extensions.filters.http.composite.v3.Composite2<envoy.extensions.filters.http.composite.v3.CompositePerRouteJ´
envoy.filters.http.compressorenvoy.filters.http26envoy.extensions.filters.http.compressor.v3.Compressor2>envoy.extensions.filters.http.compressor.v3.CompressorPerRouteJ
&envoy.filters.http.connect_grpc_bridgeenvoy.filters.http2Aenvoy.extensions.filters.http.connect_grpc_bridge.v3.FilterConfigJã
envoy.filters.http.corsenvoy.filters.http2*envoy.extensions.filters.http.cors.v3.Cors20envoy.extensions.filters.http.cors.v3.CorsPolicyJÖ
&envoy.filters.http.credential_injectorenvoy.filters.http2Genvoy.extensions.filters.http.credential_injector.v3.CredentialInjectorJ_
envoy.filters.http.csrfenvoy.filters.http20envoy.extensions.filters.http.csrf.v3.CsrfPolicyJy
"envoy.filters.http.custom_responseenvoy.filters.http2?envoy.extensions.filters.http.custom_response.v3.CustomResponseJq
envoy.filters.http.decompressorenvoy.filters.http2:envoy.extensions.filters.http.decompressor.v3.DecompressorJ 
(envoy.filters.http.dynamic_forward_proxyenvoy.filters.http2Cenvoy.extensions.filters.http.dynamic_forward_proxy.v3.FilterConfig2Eenvoy.extensions.filters.http.dynamic_forward_proxy.v3.PerRouteConfigJ§
envoy.filters.http.ext_authzenvoy.filters.http23envoy.extensions.filters.http.ext_authz.v3.ExtAuthz2;envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRouteJ©
envoy.filters.http.ext_procenvoy.filters.http29envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute2;envoy.extensions.filters.http.ext_proc.v3.ExternalProcessorJ`
envoy.filters.http.faultenvoy.filters.http20envoy.extensions.filters.http.fault.v3.HTTPFaultJs
envoy.filters.http.file_serverenvoy.filters.http2=envoy.extensions.filters.http.file_server.v3.FileServerConfigJç
%envoy.filters.http.file_system_bufferenvoy.filters.http2Penvoy.extensions.filters.http.file_system_buffer.v3.FileSystemBufferFilterConfigJø
envoy.filters.http.filter_chainenvoy.filters.http2?envoy.extensions.filters.http.filter_chain.v3.FilterChainConfig2Genvoy.extensions.filters.http.filter_chain.v3.FilterChainConfigPerRouteJs
envoy.filters.http.gcp_authnenvoy.filters.http2?envoy.extensions.filters.http.gcp_authn.v3.GcpAuthnFilterConfigJ\
envoy.filters.http.geoipenvoy.filters.http2,envoy.extensions.filters.http.geoip.v3.GeoipJê
(envoy.filters.http.grpc_field_extractionenvoy.filters.http2Penvoy.extensions.filters.http.grpc_field_extraction.v3.GrpcFieldExtractionConfigJu
$envoy.filters.http.grpc_http1_bridgeenvoy.filters.http29envoy.extensions.filters.http.grpc_http1_bridge.v3.ConfigJ‹
,envoy.filters.http.grpc_http1_reverse_bridgeenvoy.filters.http2Genvoy.extensions.filters.http.grpc_http1_reverse_bridge.v3.FilterConfig2Oenvoy.extensions.filters.http.grpc_http1_reverse_bridge.v3.FilterConfigPerRouteJû
/envoy.filters.http.grpc_json_reverse_transcoderenvoy.filters.http2Wenvoy.extensions.filters.http.grpc_json_reverse_transcoder.v3.GrpcJsonReverseTranscoderJá
'envoy.filters.http.grpc_json_transcoderenvoy.filters.http2Henvoy.extensions.filters.http.grpc_json_transcoder.v3.GrpcJsonTranscoderJm
envoy.filters.http.grpc_statsenvoy.filters.http28envoy.extensions.filters.http.grpc_stats.v3.FilterConfigJd
envoy.filters.http.grpc_webenvoy.filters.http21envoy.extensions.filters.http.grpc_web.v3.GrpcWebJ¬
"envoy.filters.http.header_mutationenvoy.filters.http2?envoy.extensions.filters.http.header_mutation.v3.HeaderMutation2Genvoy.extensions.filters.http.header_mutation.v3.HeaderMutationPerRouteJw
%envoy.filters.http.header_to_metadataenvoy.filters.http2:envoy.extensions.filters.http.header_to_metadata.v3.ConfigJp
envoy.filters.http.health_checkenvoy.filters.http29envoy.extensions.filters.http.health_check.v3.HealthCheckJj
envoy.filters.http.ip_taggingenvoy.filters.http25envoy.extensions.filters.http.ip_tagging.v3.IPTaggingJ{
#envoy.filters.http.json_to_metadataenvoy.filters.http2@envoy.extensions.filters.http.json_to_metadata.v3.JsonToMetadataJ´
envoy.filters.http.jwt_authnenvoy.filters.http2<envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication29envoy.extensions.filters.http.jwt_authn.v3.PerRouteConfigJy
"envoy.filters.http.local_ratelimitenvoy.filters.http2?envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimitJà
envoy.filters.http.luaenvoy.filters.http2(envoy.extensions.filters.http.lua.v3.Lua20envoy.extensions.filters.http.lua.v3.LuaPerRouteJ≥
!envoy.filters.http.match_delegateenvoy.filters.http28envoy.extensions.common.matching.v3.ExtensionWithMatcher2@envoy.extensions.common.matching.v3.ExtensionWithMatcherPerRouteJà
envoy.filters.http.mcpenvoy.filters.http2(envoy.extensions.filters.http.mcp.v3.Mcp20envoy.extensions.filters.http.mcp.v3.McpOverrideJ◊
'envoy.filters.http.mcp_json_rest_bridgeenvoy.filters.http2Genvoy.extensions.filters.http.mcp_json_rest_bridge.v3.McpJsonRestBridge2Oenvoy.extensions.filters.http.mcp_json_rest_bridge.v3.McpJsonRestBridgePerRouteJj
envoy.filters.http.mcp_routerenvoy.filters.http25envoy.extensions.filters.http.mcp_router.v3.McpRouterJó
envoy.filters.http.oauth2envoy.filters.http2.envoy.extensions.filters.http.oauth2.v3.OAuth226envoy.extensions.filters.http.oauth2.v3.OAuth2PerRouteJ¢
envoy.filters.http.on_demandenvoy.filters.http23envoy.extensions.filters.http.on_demand.v3.OnDemand29envoy.extensions.filters.http.on_demand.v3.PerRouteConfigJp
envoy.filters.http.original_srcenvoy.filters.http29envoy.extensions.filters.http.original_src.v3.OriginalSrcJá
%envoy.filters.http.proto_api_scrubberenvoy.filters.http2Jenvoy.extensions.filters.http.proto_api_scrubber.v3.ProtoApiScrubberConfigJô
+envoy.filters.http.proto_message_extractionenvoy.filters.http2Venvoy.extensions.filters.http.proto_message_extraction.v3.ProtoMessageExtractionConfigJ—
#envoy.filters.http.rate_limit_quotaenvoy.filters.http2Lenvoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig2Henvoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaOverrideJ¶
envoy.filters.http.ratelimitenvoy.filters.http24envoy.extensions.filters.http.ratelimit.v3.RateLimit2<envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRouteJç
envoy.filters.http.rbacenvoy.filters.http2*envoy.extensions.filters.http.rbac.v3.RBAC22envoy.extensions.filters.http.rbac.v3.RBACPerRouteJ_
envoy.filters.http.routerenvoy.filters.http2.envoy.extensions.filters.http.router.v3.RouterJs
#envoy.filters.http.set_filter_stateenvoy.filters.http28envoy.extensions.filters.http.set_filter_state.v3.ConfigJk
envoy.filters.http.set_metadataenvoy.filters.http24envoy.extensions.filters.http.set_metadata.v3.ConfigJx
"envoy.filters.http.sse_to_metadataenvoy.filters.http2>envoy.extensions.filters.http.sse_to_metadata.v3.SseToMetadataJ«
#envoy.filters.http.stateful_sessionenvoy.filters.http2Aenvoy.extensions.filters.http.stateful_session.v3.StatefulSession2Ienvoy.extensions.filters.http.stateful_session.v3.StatefulSessionPerRouteJV
envoy.filters.http.tapenvoy.filters.http2(envoy.extensions.filters.http.tap.v3.TapJÅ
%envoy.filters.http.thrift_to_metadataenvoy.filters.http2Denvoy.extensions.filters.http.thrift_to_metadata.v3.ThriftToMetadataJn
envoy.filters.http.transformenvoy.filters.http2:envoy.extensions.filters.http.transform.v3.TransformConfigJY
envoy.filters.http.wasmenvoy.filters.http2*envoy.extensions.filters.http.wasm.v3.WasmJ!
envoy.geoipenvoy.filters.httpJ-
envoy.grpc_http1_bridgeenvoy.filters.httpJ0
envoy.grpc_json_transcoderenvoy.filters.httpJ$
envoy.grpc_webenvoy.filters.httpJ(
envoy.health_checkenvoy.filters.httpJ&
envoy.ip_taggingenvoy.filters.httpJ,
envoy.local_rate_limitenvoy.filters.httpJ
	envoy.luaenvoy.filters.httpJ&
envoy.rate_limitenvoy.filters.httpJ"
envoy.routerenvoy.filters.httpJ|
envoy.filters.generic.routerenvoy.generic_proxy.filters2?envoy.extensions.filters.network.generic_proxy.router.v3.RouterJö
*envoy.http.header_validators.envoy_defaultenvoy.http.header_validators2Nenvoy.extensions.http.header_validators.envoy_default.v3.HeaderValidatorConfigJ¢
/envoy.filters.udp.session.dynamic_forward_proxyenvoy.filters.udp.session2Tenvoy.extensions.filters.udp.udp_proxy.session.dynamic_forward_proxy.v3.FilterConfigJä
#envoy.filters.udp.session.ext_authzenvoy.filters.udp.session2Henvoy.extensions.filters.udp.udp_proxy.session.ext_authz.v3.FilterConfigJê
&envoy.filters.udp.session.http_capsuleenvoy.filters.udp.session2Kenvoy.extensions.filters.udp.udp_proxy.session.http_capsule.v3.FilterConfigJ0
envoy.srds_factory.defaultenvoy.srds_factoryJv
envoy.filters.udp.dns_filterenvoy.filters.udp_listener2:envoy.extensions.filters.udp.dns_filter.v3.DnsFilterConfigJò
*envoy.filters.udp_listener.dynamic_modulesenvoy.filters.udp_listener2Nenvoy.extensions.filters.udp.dynamic_modules.v3.DynamicModuleUdpListenerFilterJ|
$envoy.filters.udp_listener.udp_proxyenvoy.filters.udp_listener28envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfigJª
5envoy.router.cluster_specifier_plugin.dynamic_modules%envoy.router.cluster_specifier_plugin2[envoy.extensions.router.cluster_specifiers.dynamic_modules.v3.DynamicModuleClusterSpecifierJè
)envoy.router.cluster_specifier_plugin.lua%envoy.router.cluster_specifier_plugin2;envoy.extensions.router.cluster_specifiers.lua.v3.LuaConfigJ•
-envoy.router.cluster_specifier_plugin.matcher%envoy.router.cluster_specifier_plugin2Menvoy.extensions.router.cluster_specifiers.matcher.v3.MatcherClusterSpecifierJπ
4envoy.router.cluster_specifier_plugin.priority_group%envoy.router.cluster_specifier_plugin2Zenvoy.extensions.router.cluster_specifiers.priority_group.v3.PriorityGroupClusterSpecifierJ:
envoy.config_subscription.adsenvoy.config_subscriptionJE
(envoy.config_subscription.ads_collectionenvoy.config_subscriptionJQ
4envoy.config_subscription.aggregated_grpc_collectionenvoy.config_subscriptionJA
$envoy.config_subscription.delta_grpcenvoy.config_subscriptionJL
/envoy.config_subscription.delta_grpc_collectionenvoy.config_subscriptionJA
$envoy.config_subscription.filesystemenvoy.config_subscriptionJL
/envoy.config_subscription.filesystem_collectionenvoy.config_subscriptionJ;
envoy.config_subscription.grpcenvoy.config_subscriptionJ;
envoy.config_subscription.restenvoy.config_subscriptionJ<
 envoy.tls.cert_validator.defaultenvoy.tls.cert_validatorJD
(envoy.tls.cert_validator.dynamic_modulesenvoy.tls.cert_validatorJ;
envoy.tls.cert_validator.spiffeenvoy.tls.cert_validatorJä
&envoy.quic.crypto_stream.server.quicheenvoy.quic.server.crypto_stream2?envoy.extensions.quic.crypto_stream.v3.CryptoServerStreamConfigJã
"envoy.http.stateful_session.cookieenvoy.http.stateful_session2Henvoy.extensions.http.stateful_session.cookie.v3.CookieBasedSessionStateJå
$envoy.http.stateful_session.envelopeenvoy.http.stateful_session2Genvoy.extensions.http.stateful_session.envelope.v3.EnvelopeSessionStateJã
"envoy.http.stateful_session.headerenvoy.http.stateful_session2Henvoy.extensions.http.stateful_session.header.v3.HeaderBasedSessionStateJ$
dubboenvoy.dubbo_proxy.protocolsJë
*envoy.quic.connection_id_generator.quic_lb"envoy.quic.connection_id_generator2?envoy.extensions.quic.connection_id_generator.quic_lb.v3.ConfigJ±
0envoy.quic.deterministic_connection_id_generator"envoy.quic.connection_id_generator2Yenvoy.extensions.quic.connection_id_generator.v3.DeterministicConnectionIdGeneratorConfigJ:
envoy.built_in_formatters.celenvoy.built_in_formattersJC
&envoy.built_in_formatters.http.defaultenvoy.built_in_formattersJ?
"envoy.built_in_formatters.metadataenvoy.built_in_formattersJJ
-envoy.built_in_formatters.stream_info.defaultenvoy.built_in_formattersJA
$envoy.built_in_formatters.xfcc_valueenvoy.built_in_formattersJè
 envoy.generic_proxy.codecs.dubboenvoy.generic_proxy.codecs2Oenvoy.extensions.filters.network.generic_proxy.codecs.dubbo.v3.DubboCodecConfigJè
 envoy.generic_proxy.codecs.http1envoy.generic_proxy.codecs2Oenvoy.extensions.filters.network.generic_proxy.codecs.http1.v3.Http1CodecConfigJá
 envoy.quic.packet_writer.defaultenvoy.quic.client_packet_writer2Benvoy.extensions.quic.client_writer_factory.v3.DefaultClientWriterJï
*envoy.access_loggers.extension_filters.cel&envoy.access_loggers.extension_filters2?envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilterJ∑
8envoy.access_loggers.extension_filters.process_ratelimit&envoy.access_loggers.extension_filters2Senvoy.extensions.access_loggers.filters.process_ratelimit.v3.ProcessRateLimitFilterJ~
-envoy.matching.custom_matchers.domain_matcher&envoy.matching.network.custom_matchers2%xds.type.matcher.v3.ServerNameMatcherJx
/envoy.matching.custom_matchers.ip_range_matcher&envoy.matching.network.custom_matchers2xds.type.matcher.v3.IPMatcherJj
envoy.queue_policy.fifoenvoy.queue_policy2;envoy.extensions.queue_policy.fifo.v3.FifoQueuePolicyConfigJ}
#envoy.compression.brotli.compressorenvoy.compression.compressor28envoy.extensions.compression.brotli.compressor.v3.BrotliJw
!envoy.compression.gzip.compressorenvoy.compression.compressor24envoy.extensions.compression.gzip.compressor.v3.GzipJw
!envoy.compression.zstd.compressorenvoy.compression.compressor24envoy.extensions.compression.zstd.compressor.v3.ZstdJZ
envoy.watchdog.abort_actionenvoy.guarddog_actions2#envoy.watchdog.v3.AbortActionConfigJ~
envoy.watchdog.backtrace_actionenvoy.guarddog_actions2Cenvoy.extensions.watchdog.backtrace_action.v3.BacktraceActionConfigJx
envoy.watchdog.profile_actionenvoy.guarddog_actions2?envoy.extensions.watchdog.profile_action.v3.ProfileActionConfigJM
envoy.formatter.celenvoy.formatter2%envoy.extensions.formatter.cel.v3.CelJx
envoy.formatter.dynamic_modulesenvoy.formatter2Denvoy.extensions.formatter.dynamic_modules.v3.DynamicModuleFormatterJg
envoy.formatter.file_contentenvoy.formatter26envoy.extensions.formatter.file_content.v3.FileContentJm
envoy.formatter.generic_secretenvoy.formatter2:envoy.extensions.formatter.generic_secret.v3.GenericSecretJ\
envoy.formatter.metadataenvoy.formatter2/envoy.extensions.formatter.metadata.v3.MetadataJu
!envoy.formatter.req_without_queryenvoy.formatter2?envoy.extensions.formatter.req_without_query.v3.ReqWithoutQueryJR
+envoy.route_config_update_requester.default#envoy.route_config_update_requesterJb
envoy.regex_engines.google_re2envoy.regex_engines2+envoy.extensions.regex_engines.v3.GoogleRE2Jô
1envoy.matching.common_inputs.environment_variableenvoy.matching.common_inputs2Fenvoy.extensions.matching.common_inputs.environment_variable.v3.ConfigJ†
%envoy.tls.handshakers.dynamic_modulesenvoy.tls_handshakers2`envoy.extensions.transport_sockets.tls.handshakers.dynamic_modules.v3.DynamicModuleTlsHandshakerJõ
+envoy.matching.action.transport_socket.nameenvoy.matching.action2Uenvoy.extensions.matching.common_inputs.transport_socket.v3.TransportSocketNameActionJl
$envoy.matching.actions.format_stringenvoy.matching.action2-envoy.config.core.v3.SubstitutionFormatStringJ…
7envoy.extensions.http.ext_proc.save_processing_response'envoy.http.ext_proc.response_processors2eenvoy.extensions.http.ext_proc.response_processors.save_processing_response.v3.SaveProcessingResponseJ†
.envoy.tracers.opentelemetry.samplers.always_on$envoy.tracers.opentelemetry.samplers2Henvoy.extensions.tracers.opentelemetry.samplers.v3.AlwaysOnSamplerConfigJï
(envoy.tracers.opentelemetry.samplers.cel$envoy.tracers.opentelemetry.samplers2Cenvoy.extensions.tracers.opentelemetry.samplers.v3.CELSamplerConfigJ°
.envoy.tracers.opentelemetry.samplers.dynatrace$envoy.tracers.opentelemetry.samplers2Ienvoy.extensions.tracers.opentelemetry.samplers.v3.DynatraceSamplerConfigJ¶
1envoy.tracers.opentelemetry.samplers.parent_based$envoy.tracers.opentelemetry.samplers2Kenvoy.extensions.tracers.opentelemetry.samplers.v3.ParentBasedSamplerConfigJ¥
9envoy.tracers.opentelemetry.samplers.trace_id_ratio_based$envoy.tracers.opentelemetry.samplers2Qenvoy.extensions.tracers.opentelemetry.samplers.v3.TraceIdRatioBasedSamplerConfigJá
$envoy.access_loggers.dynamic_modulesenvoy.access_loggers2Ienvoy.extensions.access_loggers.dynamic_modules.v3.DynamicModuleAccessLogJh
envoy.access_loggers.fileenvoy.access_loggers25envoy.extensions.access_loggers.file.v3.FileAccessLogJw
envoy.access_loggers.fluentdenvoy.access_loggers2Aenvoy.extensions.access_loggers.fluentd.v3.FluentdAccessLogConfigJw
envoy.access_loggers.http_grpcenvoy.access_loggers2?envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfigJã
#envoy.access_loggers.open_telemetryenvoy.access_loggers2Nenvoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfigJc
envoy.access_loggers.statsenvoy.access_loggers2/envoy.extensions.access_loggers.stats.v3.ConfigJn
envoy.access_loggers.stderrenvoy.access_loggers29envoy.extensions.access_loggers.stream.v3.StderrAccessLogJn
envoy.access_loggers.stdoutenvoy.access_loggers29envoy.extensions.access_loggers.stream.v3.StdoutAccessLogJu
envoy.access_loggers.tcp_grpcenvoy.access_loggers2>envoy.extensions.access_loggers.grpc.v3.TcpGrpcAccessLogConfigJh
envoy.access_loggers.wasmenvoy.access_loggers25envoy.extensions.access_loggers.wasm.v3.WasmAccessLogJ-
envoy.file_access_logenvoy.access_loggersJ0
envoy.fluentd_access_logenvoy.access_loggersJ2
envoy.http_grpc_access_logenvoy.access_loggersJ7
envoy.open_telemetry_access_logenvoy.access_loggersJ/
envoy.stderr_access_logenvoy.access_loggersJ/
envoy.stdout_access_logenvoy.access_loggersJ1
envoy.tcp_grpc_access_logenvoy.access_loggersJ-
envoy.wasm_access_logenvoy.access_loggersJØ
6envoy.internal_redirect_predicates.allow_listed_routes"envoy.internal_redirect_predicates2Qenvoy.extensions.internal_redirect.allow_listed_routes.v3.AllowListedRoutesConfigJõ
/envoy.internal_redirect_predicates.filter_state"envoy.internal_redirect_predicates2Denvoy.extensions.internal_redirect.filter_state.v3.FilterStateConfigJ§
2envoy.internal_redirect_predicates.previous_routes"envoy.internal_redirect_predicates2Jenvoy.extensions.internal_redirect.previous_routes.v3.PreviousRoutesConfigJ©
4envoy.internal_redirect_predicates.safe_cross_scheme"envoy.internal_redirect_predicates2Menvoy.extensions.internal_redirect.safe_cross_scheme.v3.SafeCrossSchemeConfigJ$
defaultnetwork.connection.clientJ+
envoy_internalnetwork.connection.clientJ®
forward_client_cert&envoy.http.forward_client_cert_details2ienvoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager.ForwardClientCertConfigJ£
.envoy.http.original_ip_detection.custom_header envoy.http.original_ip_detection2Oenvoy.extensions.http.original_ip_detection.custom_header.v3.CustomHeaderConfigJÜ
$envoy.http.original_ip_detection.xff envoy.http.original_ip_detection2<envoy.extensions.http.original_ip_detection.xff.v3.XffConfigJv
envoy.filters.dubbo.routerenvoy.dubbo_proxy.filters2=envoy.extensions.filters.network.dubbo_proxy.router.v3.RouterJ{
envoy.key_value.file_basedenvoy.common.key_value2Eenvoy.extensions.key_value.file_based.v3.FileBasedKeyValueStoreConfigJ∑
5envoy.http.stateful_header_formatters.dynamic_modules%envoy.http.stateful_header_formatters2Wenvoy.extensions.http.header_formatters.dynamic_modules.v3.DynamicModuleHeaderFormatterJ≤
3envoy.http.stateful_header_formatters.preserve_case%envoy.http.stateful_header_formatters2Tenvoy.extensions.http.header_formatters.preserve_case.v3.PreserveCaseFormatterConfigJ6
preserve_case%envoy.http.stateful_header_formattersJp
7envoy.filters.upstream_network.reverse_tunnel_lifecycleenvoy.filters.upstream_network2google.protobuf.EmptyJé
stat_full_name_match_input'envoy.matching.stat_matching_data.input2Genvoy.extensions.matching.common_inputs.stats.v3.StatFullNameMatchInputJ∫
Denvoy.upstream.local_address_selector.default_local_address_selector%envoy.upstream.local_address_selector2Kenvoy.config.upstream.local_address_selector.v3.DefaultLocalAddressSelectorJÆ
;envoy.upstream.local_address_selector.filter_state_override%envoy.upstream.local_address_selector2Henvoy.extensions.local_address_selectors.filter_state_override.v3.ConfigJ•
0envoy.tls.certificate_selectors.on_demand_secretenvoy.tls.certificate_selectors2Penvoy.extensions.transport_sockets.tls.cert_selectors.on_demand_secret.v3.ConfigJb
envoy.request_id.uuidenvoy.request_id27envoy.extensions.request_id.uuid.v3.UuidRequestIdConfigJL
(envoy.ssl.server_context_factory.default envoy.ssl.server_context_factoryJ#

envoy.echoenvoy.filters.networkJ(
envoy.ext_authzenvoy.filters.networkJÖ
&envoy.filters.network.connection_limitenvoy.filters.network2Denvoy.extensions.filters.network.connection_limit.v3.ConnectionLimitJz
%envoy.filters.network.direct_responseenvoy.filters.network2:envoy.extensions.filters.network.direct_response.v3.ConfigJv
!envoy.filters.network.dubbo_proxyenvoy.filters.network2:envoy.extensions.filters.network.dubbo_proxy.v3.DubboProxyJé
%envoy.filters.network.dynamic_modulesenvoy.filters.network2Nenvoy.extensions.filters.network.dynamic_modules.v3.DynamicModuleNetworkFilterJb
envoy.filters.network.echoenvoy.filters.network2-envoy.extensions.filters.network.echo.v3.EchoJp
envoy.filters.network.ext_authzenvoy.filters.network26envoy.extensions.filters.network.ext_authz.v3.ExtAuthzJ~
envoy.filters.network.ext_procenvoy.filters.network2Eenvoy.extensions.filters.network.ext_proc.v3.NetworkExternalProcessorJ|
#envoy.filters.network.generic_proxyenvoy.filters.network2>envoy.extensions.filters.network.generic_proxy.v3.GenericProxyJe
envoy.filters.network.geoipenvoy.filters.network2/envoy.extensions.filters.network.geoip.v3.GeoipJô
-envoy.filters.network.http_connection_managerenvoy.filters.network2Qenvoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManagerJÇ
%envoy.filters.network.local_ratelimitenvoy.filters.network2Benvoy.extensions.filters.network.local_ratelimit.v3.LocalRateLimitJv
!envoy.filters.network.mongo_proxyenvoy.filters.network2:envoy.extensions.filters.network.mongo_proxy.v3.MongoProxyJq
envoy.filters.network.ratelimitenvoy.filters.network27envoy.extensions.filters.network.ratelimit.v3.RateLimitJb
envoy.filters.network.rbacenvoy.filters.network2-envoy.extensions.filters.network.rbac.v3.RBACJv
!envoy.filters.network.redis_proxyenvoy.filters.network2:envoy.extensions.filters.network.redis_proxy.v3.RedisProxyJ
$envoy.filters.network.reverse_tunnelenvoy.filters.network2@envoy.extensions.filters.network.reverse_tunnel.v3.ReverseTunnelJµ
Henvoy.filters.network.reverse_tunnel_drain_aware_http_connection_managerenvoy.filters.network2Renvoy.extensions.filters.network.reverse_tunnel.v3.DrainAwareHttpConnectionManagerJ|
&envoy.filters.network.set_filter_stateenvoy.filters.network2;envoy.extensions.filters.network.set_filter_state.v3.ConfigJv
!envoy.filters.network.sni_clusterenvoy.filters.network2:envoy.extensions.filters.network.sni_cluster.v3.SniClusterJî
/envoy.filters.network.sni_dynamic_forward_proxyenvoy.filters.network2Jenvoy.extensions.filters.network.sni_dynamic_forward_proxy.v3.FilterConfigJç
)envoy.filters.network.tcp_bandwidth_limitenvoy.filters.network2Ienvoy.extensions.filters.network.tcp_bandwidth_limit.v3.TcpBandwidthLimitJp
envoy.filters.network.tcp_proxyenvoy.filters.network26envoy.extensions.filters.network.tcp_proxy.v3.TcpProxyJy
"envoy.filters.network.thrift_proxyenvoy.filters.network2<envoy.extensions.filters.network.thrift_proxy.v3.ThriftProxyJb
envoy.filters.network.wasmenvoy.filters.network2-envoy.extensions.filters.network.wasm.v3.WasmJÇ
%envoy.filters.network.zookeeper_proxyenvoy.filters.network2Benvoy.extensions.filters.network.zookeeper_proxy.v3.ZooKeeperProxyJ6
envoy.http_connection_managerenvoy.filters.networkJ*
envoy.mongo_proxyenvoy.filters.networkJ(
envoy.ratelimitenvoy.filters.networkJ*
envoy.redis_proxyenvoy.filters.networkJ(
envoy.tcp_proxyenvoy.filters.networkJÆ
0envoy.tls.certificate_selectors.on_demand_secret(envoy.tls.upstream_certificate_selectors2Penvoy.extensions.transport_sockets.tls.cert_selectors.on_demand_secret.v3.ConfigJó
2envoy.extensions.http.cache.file_system_http_cacheenvoy.http.cache2Oenvoy.extensions.http.cache.file_system_http_cache.v3.FileSystemHttpCacheConfigJ~
"envoy.extensions.http.cache.simpleenvoy.http.cache2Fenvoy.extensions.http.cache.simple_http_cache.v3.SimpleHttpCacheConfigJÉ
%envoy.compression.brotli.decompressorenvoy.compression.decompressor2:envoy.extensions.compression.brotli.decompressor.v3.BrotliJ}
#envoy.compression.gzip.decompressorenvoy.compression.decompressor26envoy.extensions.compression.gzip.decompressor.v3.GzipJ}
#envoy.compression.zstd.decompressorenvoy.compression.decompressor26envoy.extensions.compression.zstd.decompressor.v3.ZstdJä
2envoy.path.match.uri_template.uri_template_matcherenvoy.path.match2Benvoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfigJo
envoy.content_parsers.jsonenvoy.content_parsers2:envoy.extensions.content_parsers.json.v3.JsonContentParserJ©
(quic.server_preferred_address.datasource#envoy.quic.server_preferred_address2Xenvoy.extensions.quic.server_preferred_address.v3.DataSourceServerPreferredAddressConfigJü
#quic.server_preferred_address.fixed#envoy.quic.server_preferred_address2Senvoy.extensions.quic.server_preferred_address.v3.FixedServerPreferredAddressConfigJÖ
$envoy.rbac.matchers.upstream_ip_portenvoy.rbac.matchers2Henvoy.extensions.rbac.matchers.upstream_ip_port.v3.UpstreamIpPortMatcherJà
%envoy.resource_monitors.cgroup_memoryenvoy.resource_monitors2Fenvoy.extensions.resource_monitors.cgroup_memory.v3.CgroupMemoryConfigJé
'envoy.resource_monitors.cpu_utilizationenvoy.resource_monitors2Jenvoy.extensions.resource_monitors.cpu_utilization.v3.CpuUtilizationConfigJ
"envoy.resource_monitors.fixed_heapenvoy.resource_monitors2@envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfigJî
)envoy.resource_monitors.injected_resourceenvoy.resource_monitors2Nenvoy.extensions.resource_monitors.injected_resource.v3.InjectedResourceConfigJK
envoy.tracers.datadogenvoy.tracers2#envoy.config.trace.v3.DatadogConfigJo
envoy.tracers.dynamic_modulesenvoy.tracers2?envoy.extensions.tracers.dynamic_modules.v3.DynamicModuleTracerJY
envoy.tracers.fluentdenvoy.tracers21envoy.extensions.tracers.fluentd.v3.FluentdConfigJW
envoy.tracers.opentelemetryenvoy.tracers2)envoy.config.trace.v3.OpenTelemetryConfigJQ
envoy.tracers.skywalkingenvoy.tracers2&envoy.config.trace.v3.SkyWalkingConfigJE
envoy.tracers.xrayenvoy.tracers2 envoy.config.trace.v3.XRayConfigJI
envoy.tracers.zipkinenvoy.tracers2"envoy.config.trace.v3.ZipkinConfigJ
envoy.zipkinenvoy.tracersJó
-envoy.retry_host_predicates.omit_canary_hostsenvoy.retry_host_predicates2Ienvoy.extensions.retry.host.omit_canary_hosts.v3.OmitCanaryHostsPredicateJó
.envoy.retry_host_predicates.omit_host_metadataenvoy.retry_host_predicates2Henvoy.extensions.retry.host.omit_host_metadata.v3.OmitHostMetadataConfigJè
*envoy.retry_host_predicates.previous_hostsenvoy.retry_host_predicates2Denvoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicateJ¢
5envoy.extensions.http.cache_v2.file_system_http_cacheenvoy.http.cache_v22Tenvoy.extensions.http.cache_v2.file_system_http_cache.v3.FileSystemHttpCacheV2ConfigJâ
%envoy.extensions.http.cache_v2.simpleenvoy.http.cache_v22Kenvoy.extensions.http.cache_v2.simple_http_cache.v3.SimpleHttpCacheV2ConfigJ}
!envoy.rate_limit_descriptors.exprenvoy.rate_limit_descriptors2:envoy.extensions.rate_limit_descriptors.expr.v3.DescriptorJá
&envoy.rate_limit_descriptors.jwt_claimenvoy.rate_limit_descriptors2?envoy.extensions.rate_limit_descriptors.jwt_claim.v3.DescriptorJ{
-envoy.matching.custom_matchers.domain_matcher#envoy.matching.http.custom_matchers2%xds.type.matcher.v3.ServerNameMatcherJu
/envoy.matching.custom_matchers.ip_range_matcher#envoy.matching.http.custom_matchers2xds.type.matcher.v3.IPMatcherJ•
'envoy.matching.generic_proxy.input.host0envoy.matching.generic_proxy_request_input.input2Henvoy.extensions.filters.network.generic_proxy.matcher.v3.HostMatchInputJ©
)envoy.matching.generic_proxy.input.method0envoy.matching.generic_proxy_request_input.input2Jenvoy.extensions.filters.network.generic_proxy.matcher.v3.MethodMatchInputJ•
'envoy.matching.generic_proxy.input.path0envoy.matching.generic_proxy_request_input.input2Henvoy.extensions.filters.network.generic_proxy.matcher.v3.PathMatchInputJ≠
+envoy.matching.generic_proxy.input.property0envoy.matching.generic_proxy_request_input.input2Lenvoy.extensions.filters.network.generic_proxy.matcher.v3.PropertyMatchInputJ´
*envoy.matching.generic_proxy.input.request0envoy.matching.generic_proxy_request_input.input2Kenvoy.extensions.filters.network.generic_proxy.matcher.v3.RequestMatchInputJ´
*envoy.matching.generic_proxy.input.service0envoy.matching.generic_proxy_request_input.input2Kenvoy.extensions.filters.network.generic_proxy.matcher.v3.ServiceMatchInputJ 
>envoy.load_balancing_policies.client_side_weighted_round_robinenvoy.load_balancing_policies2ienvoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobinJù
.envoy.load_balancing_policies.cluster_providedenvoy.load_balancing_policies2Lenvoy.extensions.load_balancing_policies.cluster_provided.v3.ClusterProvidedJ¨
-envoy.load_balancing_policies.dynamic_modulesenvoy.load_balancing_policies2\envoy.extensions.load_balancing_policies.dynamic_modules.v3.DynamicModulesLoadBalancerConfigJî
+envoy.load_balancing_policies.least_requestenvoy.load_balancing_policies2Fenvoy.extensions.load_balancing_policies.least_request.v3.LeastRequestJ•
1envoy.load_balancing_policies.load_aware_localityenvoy.load_balancing_policies2Qenvoy.extensions.load_balancing_policies.load_aware_locality.v3.LoadAwareLocalityJÄ
$envoy.load_balancing_policies.maglevenvoy.load_balancing_policies29envoy.extensions.load_balancing_policies.maglev.v3.MaglevJî
+envoy.load_balancing_policies.override_hostenvoy.load_balancing_policies2Fenvoy.extensions.load_balancing_policies.override_host.v3.OverrideHostJÄ
$envoy.load_balancing_policies.randomenvoy.load_balancing_policies29envoy.extensions.load_balancing_policies.random.v3.RandomJà
'envoy.load_balancing_policies.ring_hashenvoy.load_balancing_policies2>envoy.extensions.load_balancing_policies.ring_hash.v3.RingHashJé
)envoy.load_balancing_policies.round_robinenvoy.load_balancing_policies2Benvoy.extensions.load_balancing_policies.round_robin.v3.RoundRobinJÄ
$envoy.load_balancing_policies.subsetenvoy.load_balancing_policies29envoy.extensions.load_balancing_policies.subset.v3.SubsetJë
*envoy.load_balancing_policies.wrr_localityenvoy.load_balancing_policies2Denvoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocalityJß
-envoy.router.route_specifiers.dynamic_modulesenvoy.router.route_specifiers2Wenvoy.extensions.router.route_specifiers.dynamic_modules.v3.DynamicModuleRouteSpecifierJq
envoy.transport_sockets.alts envoy.transport_sockets.upstream2/envoy.extensions.transport_sockets.alts.v3.AltsJü
'envoy.transport_sockets.dynamic_modules envoy.transport_sockets.upstream2Renvoy.extensions.transport_sockets.dynamic_modules.v3.DynamicModuleTransportSocketJõ
%envoy.transport_sockets.http_11_proxy envoy.transport_sockets.upstream2Penvoy.extensions.transport_sockets.http_11_proxy.v3.Http11ProxyUpstreamTransportJ†
)envoy.transport_sockets.internal_upstream envoy.transport_sockets.upstream2Qenvoy.extensions.transport_sockets.internal_upstream.v3.InternalUpstreamTransportJÇ
envoy.transport_sockets.quic envoy.transport_sockets.upstream2@envoy.extensions.transport_sockets.quic.v3.QuicUpstreamTransportJÇ
"envoy.transport_sockets.raw_buffer envoy.transport_sockets.upstream2:envoy.extensions.transport_sockets.raw_buffer.v3.RawBufferJã
 envoy.transport_sockets.starttls envoy.transport_sockets.upstream2Eenvoy.extensions.transport_sockets.starttls.v3.UpstreamStartTlsConfigJn
envoy.transport_sockets.tap envoy.transport_sockets.upstream2-envoy.extensions.transport_sockets.tap.v3.TapJ}
!envoy.transport_sockets.tcp_stats envoy.transport_sockets.upstream26envoy.extensions.transport_sockets.tcp_stats.v3.ConfigJ}
envoy.transport_sockets.tls envoy.transport_sockets.upstream2<envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContextJ®
/envoy.transport_sockets.upstream_proxy_protocol envoy.transport_sockets.upstream2Senvoy.extensions.transport_sockets.proxy_protocol.v3.ProxyProtocolUpstreamTransportJ.

raw_buffer envoy.transport_sockets.upstreamJ,
starttls envoy.transport_sockets.upstreamJ'
tls envoy.transport_sockets.upstreamJâ
'envoy.http.injected_credentials.genericenvoy.http.injected_credentials2=envoy.extensions.http.injected_credentials.generic.v3.GenericJÜ
&envoy.http.injected_credentials.oauth2envoy.http.injected_credentials2;envoy.extensions.http.injected_credentials.oauth2.v3.OAuth2Js
envoy.transport_sockets.alts"envoy.transport_sockets.downstream2/envoy.extensions.transport_sockets.alts.v3.AltsJ°
'envoy.transport_sockets.dynamic_modules"envoy.transport_sockets.downstream2Renvoy.extensions.transport_sockets.dynamic_modules.v3.DynamicModuleTransportSocketJÜ
envoy.transport_sockets.quic"envoy.transport_sockets.downstream2Benvoy.extensions.transport_sockets.quic.v3.QuicDownstreamTransportJÑ
"envoy.transport_sockets.raw_buffer"envoy.transport_sockets.downstream2:envoy.extensions.transport_sockets.raw_buffer.v3.RawBufferJÖ
 envoy.transport_sockets.starttls"envoy.transport_sockets.downstream2=envoy.extensions.transport_sockets.starttls.v3.StartTlsConfigJp
envoy.transport_sockets.tap"envoy.transport_sockets.downstream2-envoy.extensions.transport_sockets.tap.v3.TapJ
!envoy.transport_sockets.tcp_stats"envoy.transport_sockets.downstream26envoy.extensions.transport_sockets.tcp_stats.v3.ConfigJÅ
envoy.transport_sockets.tls"envoy.transport_sockets.downstream2>envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContextJ0

raw_buffer"envoy.transport_sockets.downstreamJ.
starttls"envoy.transport_sockets.downstreamJ)
tls"envoy.transport_sockets.downstreamJ¬
Senvoy.extensions.upstreams.http.reverse_tunnel.v3.ReverseTunnelUpstreamCodecOptionsenvoy.upstream_options2Senvoy.extensions.upstreams.http.reverse_tunnel.v3.ReverseTunnelUpstreamCodecOptionsJà
6envoy.extensions.upstreams.http.v3.HttpProtocolOptionsenvoy.upstream_options26envoy.extensions.upstreams.http.v3.HttpProtocolOptionsJÑ
4envoy.extensions.upstreams.tcp.v3.TcpProtocolOptionsenvoy.upstream_options24envoy.extensions.upstreams.tcp.v3.TcpProtocolOptionsJD
*envoy.upstreams.http.http_protocol_optionsenvoy.upstream_optionsJB
(envoy.upstreams.tcp.tcp_protocol_optionsenvoy.upstream_optionsJq
envoy.geoip_providers.maxmindenvoy.geoip_providers29envoy.extensions.geoip_providers.maxmind.v3.MaxMindConfigJ£
'envoy.matching.inputs.endpoint_metadata%envoy.matching.transport_socket.input2Qenvoy.extensions.matching.common_inputs.transport_socket.v3.EndpointMetadataInputJ£
'envoy.matching.inputs.locality_metadata%envoy.matching.transport_socket.input2Qenvoy.extensions.matching.common_inputs.transport_socket.v3.LocalityMetadataInputJ™
3envoy.matching.inputs.transport_socket_filter_state%envoy.matching.transport_socket.input2Lenvoy.extensions.matching.common_inputs.transport_socket.v3.FilterStateInputJ<
 envoy.connection_handler.defaultenvoy.connection_handlerJm
#envoy.listener_manager_impl.defaultenvoy.listener_manager_impl2)envoy.config.bootstrap.v3.ListenerManagerJz
&envoy.listener_manager_impl.validationenvoy.listener_manager_impl23envoy.config.bootstrap.v3.ValidationListenerManagerJá
stat_tag_value_input+envoy.matching.stat_tag_matching_data.input2Benvoy.extensions.matching.common_inputs.stats.v3.StatTagValueInputJñ
'envoy.config.validators.dynamic_modulesenvoy.config.validators2Renvoy.extensions.config.validators.dynamic_modules.v3.DynamicModuleConfigValidatorJC
(envoy.config.validators.minimum_clustersenvoy.config.validatorsJû
2envoy.config.validators.minimum_clusters_validatorenvoy.config.validators2Oenvoy.extensions.config.validators.minimum_clusters.v3.MinimumClustersValidatorJï
*envoy.retry_priorities.previous_prioritiesenvoy.retry_priorities2Oenvoy.extensions.retry.priority.previous_priorities.v3.PreviousPrioritiesConfigJ}
%envoy.route.early_data_policy.defaultenvoy.route.early_data_policy25envoy.extensions.early_data.v3.DefaultEarlyDataPolicyJì
5envoy.path.rewrite.uri_template.uri_template_rewriterenvoy.path.rewrite2Fenvoy.extensions.path.rewrite.uri_template.v3.UriTemplateRewriteConfigJ-
envoy.wasm.runtime.nullenvoy.wasm.runtimeJ+
envoy.wasm.runtime.v8envoy.wasm.runtimeJB
#quic.http_server_connection.defaultquic.http_server_connectionJ/
dubbo.hessian2envoy.dubbo_proxy.serializersJ;
'envoy.config_mux.delta_grpc_mux_factoryenvoy.config_muxJ5
!envoy.config_mux.grpc_mux_factoryenvoy.config_muxJ9
%envoy.config_mux.new_grpc_mux_factoryenvoy.config_muxJ:
&envoy.config_mux.sotw_grpc_mux_factoryenvoy.config_muxJx
$envoy.quic.proof_source.filter_chainenvoy.quic.proof_source27envoy.extensions.quic.proof_source.v3.ProofSourceConfigJè
)envoy.quic.connection_debug_visitor.basic#envoy.quic.connection_debug_visitor2=envoy.extensions.quic.connection_debug_visitor.v3.BasicConfigJö
.envoy.quic.connection_debug_visitor.quic_stats#envoy.quic.connection_debug_visitor2Cenvoy.extensions.quic.connection_debug_visitor.quic_stats.v3.ConfigJy
envoy.udp_packet_writer.defaultenvoy.udp_packet_writer2=envoy.extensions.udp_packet_writer.v3.UdpDefaultWriterFactoryJv
envoy.udp_packet_writer.gsoenvoy.udp_packet_writer2>envoy.extensions.udp_packet_writer.v3.UdpGsoBatchWriterFactoryJ†
5envoy.matching.input_matchers.generic_request_matcherenvoy.matching.input_matchers2Henvoy.extensions.filters.network.generic_proxy.matcher.v3.RequestMatcherJd
#envoy.matching.matchers.cel_matcherenvoy.matching.input_matchers2xds.type.matcher.v3.CelMatcherJù
*envoy.matching.matchers.consistent_hashingenvoy.matching.input_matchers2Penvoy.extensions.matching.input_matchers.consistent_hashing.v3.ConsistentHashingJö
'envoy.matching.matchers.dynamic_modulesenvoy.matching.input_matchers2Penvoy.extensions.matching.input_matchers.dynamic_modules.v3.DynamicModuleMatcherJn
envoy.matching.matchers.ipenvoy.matching.input_matchers21envoy.extensions.matching.input_matchers.ip.v3.IpJà
(envoy.matching.matchers.metadata_matcherenvoy.matching.input_matchers2=envoy.extensions.matching.input_matchers.metadata.v3.MetadataJó
(envoy.matching.matchers.runtime_fractionenvoy.matching.input_matchers2Lenvoy.extensions.matching.input_matchers.runtime_fraction.v3.RuntimeFractionJó
*envoy.matching.inputs.application_protocolenvoy.matching.network.input2Kenvoy.extensions.matching.common_inputs.network.v3.ApplicationProtocolInputJã
$envoy.matching.inputs.destination_ipenvoy.matching.network.input2Eenvoy.extensions.matching.common_inputs.network.v3.DestinationIPInputJè
&envoy.matching.inputs.destination_portenvoy.matching.network.input2Genvoy.extensions.matching.common_inputs.network.v3.DestinationPortInputJé
&envoy.matching.inputs.direct_source_ipenvoy.matching.network.input2Fenvoy.extensions.matching.common_inputs.network.v3.DirectSourceIPInputJy
envoy.matching.inputs.dns_sanenvoy.matching.network.input2:envoy.extensions.matching.common_inputs.ssl.v3.DnsSanInputJá
"envoy.matching.inputs.filter_stateenvoy.matching.network.input2Cenvoy.extensions.matching.common_inputs.network.v3.FilterStateInputJë
'envoy.matching.inputs.network_namespaceenvoy.matching.network.input2Henvoy.extensions.matching.common_inputs.network.v3.NetworkNamespaceInputJÖ
!envoy.matching.inputs.server_nameenvoy.matching.network.input2Benvoy.extensions.matching.common_inputs.network.v3.ServerNameInputJÅ
envoy.matching.inputs.source_ipenvoy.matching.network.input2@envoy.extensions.matching.common_inputs.network.v3.SourceIPInputJÖ
!envoy.matching.inputs.source_portenvoy.matching.network.input2Benvoy.extensions.matching.common_inputs.network.v3.SourcePortInputJÖ
!envoy.matching.inputs.source_typeenvoy.matching.network.input2Benvoy.extensions.matching.common_inputs.network.v3.SourceTypeInputJz
envoy.matching.inputs.subjectenvoy.matching.network.input2;envoy.extensions.matching.common_inputs.ssl.v3.SubjectInputJì
(envoy.matching.inputs.transport_protocolenvoy.matching.network.input2Ienvoy.extensions.matching.common_inputs.network.v3.TransportProtocolInputJy
envoy.matching.inputs.uri_sanenvoy.matching.network.input2:envoy.extensions.matching.common_inputs.ssl.v3.UriSanInputJ≠
;envoy.extensions.http.custom_response.local_response_policyenvoy.http.custom_response2Renvoy.extensions.http.custom_response.local_response_policy.v3.LocalResponsePolicyJú
5envoy.extensions.http.custom_response.redirect_policyenvoy.http.custom_response2Genvoy.extensions.http.custom_response.redirect_policy.v3.RedirectPolicyJr
$envoy.matching.inputs.cel_data_inputenvoy.matching.http.input2/xds.type.matcher.v3.HttpAttributesCelMatchInputJà
$envoy.matching.inputs.destination_ipenvoy.matching.http.input2Eenvoy.extensions.matching.common_inputs.network.v3.DestinationIPInputJå
&envoy.matching.inputs.destination_portenvoy.matching.http.input2Genvoy.extensions.matching.common_inputs.network.v3.DestinationPortInputJã
&envoy.matching.inputs.direct_source_ipenvoy.matching.http.input2Fenvoy.extensions.matching.common_inputs.network.v3.DirectSourceIPInputJv
envoy.matching.inputs.dns_sanenvoy.matching.http.input2:envoy.extensions.matching.common_inputs.ssl.v3.DnsSanInputJå
&envoy.matching.inputs.dynamic_metadataenvoy.matching.http.input2Genvoy.extensions.matching.common_inputs.network.v3.DynamicMetadataInputJõ
/envoy.matching.inputs.dynamic_module_data_inputenvoy.matching.http.input2Menvoy.extensions.matching.http.dynamic_modules.v3.HttpDynamicModuleMatchInputJù
6envoy.matching.inputs.dynamic_module_string_data_inputenvoy.matching.http.input2Henvoy.extensions.matching.http.dynamic_modules.v3.DynamicModuleDataInputJÑ
"envoy.matching.inputs.filter_stateenvoy.matching.http.input2Cenvoy.extensions.matching.common_inputs.network.v3.FilterStateInputJv
!envoy.matching.inputs.local_replyenvoy.matching.http.input26envoy.type.matcher.v3.HttpResponseLocalReplyMatchInputJé
'envoy.matching.inputs.network_namespaceenvoy.matching.http.input2Henvoy.extensions.matching.common_inputs.network.v3.NetworkNamespaceInputJu
%envoy.matching.inputs.request_headersenvoy.matching.http.input21envoy.type.matcher.v3.HttpRequestHeaderMatchInputJw
&envoy.matching.inputs.request_trailersenvoy.matching.http.input22envoy.type.matcher.v3.HttpRequestTrailerMatchInputJw
&envoy.matching.inputs.response_headersenvoy.matching.http.input22envoy.type.matcher.v3.HttpResponseHeaderMatchInputJy
'envoy.matching.inputs.response_trailersenvoy.matching.http.input23envoy.type.matcher.v3.HttpResponseTrailerMatchInputJÇ
!envoy.matching.inputs.server_nameenvoy.matching.http.input2Benvoy.extensions.matching.common_inputs.network.v3.ServerNameInputJ~
envoy.matching.inputs.source_ipenvoy.matching.http.input2@envoy.extensions.matching.common_inputs.network.v3.SourceIPInputJÇ
!envoy.matching.inputs.source_portenvoy.matching.http.input2Benvoy.extensions.matching.common_inputs.network.v3.SourcePortInputJÇ
!envoy.matching.inputs.source_typeenvoy.matching.http.input2Benvoy.extensions.matching.common_inputs.network.v3.SourceTypeInputJá
-envoy.matching.inputs.status_code_class_inputenvoy.matching.http.input2;envoy.type.matcher.v3.HttpResponseStatusCodeClassMatchInputJ|
'envoy.matching.inputs.status_code_inputenvoy.matching.http.input26envoy.type.matcher.v3.HttpResponseStatusCodeMatchInputJw
envoy.matching.inputs.subjectenvoy.matching.http.input2;envoy.extensions.matching.common_inputs.ssl.v3.SubjectInputJv
envoy.matching.inputs.uri_sanenvoy.matching.http.input2:envoy.extensions.matching.common_inputs.ssl.v3.UriSanInputJ`
query_paramsenvoy.matching.http.input25envoy.type.matcher.v3.HttpRequestQueryParamMatchInputJÄ
(envoy.rbac.principals.mtls_authenticatedenvoy.rbac.principals2=envoy.extensions.rbac.principals.mtls_authenticated.v3.ConfigJ8
envoy.grpc_credentials.defaultenvoy.grpc_credentialsJD
*envoy.grpc_credentials.file_based_metadataenvoy.grpc_credentialsJ+
envoy.bufferenvoy.filters.http.upstreamJ-
envoy.ext_procenvoy.filters.http.upstreamJ‡
-envoy.extensions.filters.http.dynamic_modulesenvoy.filters.http.upstream2Denvoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter2Lenvoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilterPerRouteJà
$envoy.filters.http.admission_controlenvoy.filters.http.upstream2Cenvoy.extensions.filters.http.admission_control.v3.AdmissionControlJ›
&envoy.filters.http.ai_protocol_managerenvoy.filters.http.upstream2Fenvoy.extensions.filters.http.ai_protocol_manager.v3.AiProtocolManager2Nenvoy.extensions.filters.http.ai_protocol_manager.v3.AiProtocolManagerPerRouteJ¨
envoy.filters.http.aws_lambdaenvoy.filters.http.upstream22envoy.extensions.filters.http.aws_lambda.v3.Config2:envoy.extensions.filters.http.aws_lambda.v3.PerRouteConfigJ›
&envoy.filters.http.aws_request_signingenvoy.filters.http.upstream2Fenvoy.extensions.filters.http.aws_request_signing.v3.AwsRequestSigning2Nenvoy.extensions.filters.http.aws_request_signing.v3.AwsRequestSigningPerRouteJÅ
"envoy.filters.http.body_size_limitenvoy.filters.http.upstream2>envoy.extensions.filters.http.body_size_limit.v3.BodySizeLimitJ†
envoy.filters.http.bufferenvoy.filters.http.upstream2.envoy.extensions.filters.http.buffer.v3.Buffer26envoy.extensions.filters.http.buffer.v3.BufferPerRouteJØ
envoy.filters.http.compositeenvoy.filters.http.upstream24envoy.extensions.filters.http.composite.v3.Composite2<envoy.extensions.filters.http.composite.v3.CompositePerRouteJ¥
envoy.filters.http.compressorenvoy.filters.http.upstream26envoy.extensions.filters.http.compressor.v3.Compressor2>envoy.extensions.filters.http.compressor.v3.CompressorPerRouteJé
&envoy.filters.http.credential_injectorenvoy.filters.http.upstream2Genvoy.extensions.filters.http.credential_injector.v3.CredentialInjectorJ≤
envoy.filters.http.ext_procenvoy.filters.http.upstream29envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute2;envoy.extensions.filters.http.ext_proc.v3.ExternalProcessorJÀ
"envoy.filters.http.header_mutationenvoy.filters.http.upstream2?envoy.extensions.filters.http.header_mutation.v3.HeaderMutation2Genvoy.extensions.filters.http.header_mutation.v3.HeaderMutationPerRouteJë
envoy.filters.http.luaenvoy.filters.http.upstream2(envoy.extensions.filters.http.lua.v3.Lua20envoy.extensions.filters.http.lua.v3.LuaPerRouteJº
!envoy.filters.http.match_delegateenvoy.filters.http.upstream28envoy.extensions.common.matching.v3.ExtensionWithMatcher2@envoy.extensions.common.matching.v3.ExtensionWithMatcherPerRouteJ
!envoy.filters.http.upstream_codecenvoy.filters.http.upstream2=envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodecJk
 envoy.filters.http.upstream_rbacenvoy.filters.http.upstream2*envoy.extensions.filters.http.rbac.v3.RBACJb
envoy.filters.http.wasmenvoy.filters.http.upstream2*envoy.extensions.filters.http.wasm.v3.WasmJ»
8envoy.tracers.opentelemetry.resource_detectors.dynatrace.envoy.tracers.opentelemetry.resource_detectors2\envoy.extensions.tracers.opentelemetry.resource_detectors.v3.DynatraceResourceDetectorConfigJÃ
:envoy.tracers.opentelemetry.resource_detectors.environment.envoy.tracers.opentelemetry.resource_detectors2^envoy.extensions.tracers.opentelemetry.resource_detectors.v3.EnvironmentResourceDetectorConfigJœ
<envoy.tracers.opentelemetry.resource_detectors.static_config.envoy.tracers.opentelemetry.resource_detectors2_envoy.extensions.tracers.opentelemetry.resource_detectors.v3.StaticConfigResourceDetectorConfigJí
&envoy.filters.listener.dynamic_modulesenvoy.filters.listener2Penvoy.extensions.filters.listener.dynamic_modules.v3.DynamicModuleListenerFilterJÇ
%envoy.filters.listener.http_inspectorenvoy.filters.listener2Aenvoy.extensions.filters.listener.http_inspector.v3.HttpInspectorJÖ
&envoy.filters.listener.local_ratelimitenvoy.filters.listener2Cenvoy.extensions.filters.listener.local_ratelimit.v3.LocalRateLimitJ|
#envoy.filters.listener.original_dstenvoy.filters.listener2=envoy.extensions.filters.listener.original_dst.v3.OriginalDstJ|
#envoy.filters.listener.original_srcenvoy.filters.listener2=envoy.extensions.filters.listener.original_src.v3.OriginalSrcJÇ
%envoy.filters.listener.proxy_protocolenvoy.filters.listener2Aenvoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocolJ
'envoy.filters.listener.set_filter_stateenvoy.filters.listener2<envoy.extensions.filters.listener.set_filter_state.v3.ConfigJ
$envoy.filters.listener.tls_inspectorenvoy.filters.listener2?envoy.extensions.filters.listener.tls_inspector.v3.TlsInspectorJ7
envoy.listener.http_inspectorenvoy.filters.listenerJ5
envoy.listener.original_dstenvoy.filters.listenerJ5
envoy.listener.original_srcenvoy.filters.listenerJ7
envoy.listener.proxy_protocolenvoy.filters.listenerJ6
envoy.listener.tls_inspectorenvoy.filters.listenerJ\
envoy.string_matcher.luaenvoy.string_matcher2*envoy.extensions.string_matcher.lua.v3.LuaJ%
envoy.dog_statsdenvoy.stats_sinksJ*
envoy.graphite_statsdenvoy.stats_sinksJ*
envoy.metrics_serviceenvoy.stats_sinksJ3
envoy.open_telemetry_stat_sinkenvoy.stats_sinksJW
envoy.stat_sinks.dog_statsdenvoy.stats_sinks2%envoy.config.metrics.v3.DogStatsdSinkJ|
 envoy.stat_sinks.dynamic_modulesenvoy.stats_sinks2Eenvoy.extensions.stat_sinks.dynamic_modules.v3.DynamicModuleStatsSinkJx
 envoy.stat_sinks.graphite_statsdenvoy.stats_sinks2Aenvoy.extensions.stat_sinks.graphite_statsd.v3.GraphiteStatsdSinkJR
envoy.stat_sinks.hystrixenvoy.stats_sinks2#envoy.config.metrics.v3.HystrixSinkJc
 envoy.stat_sinks.metrics_serviceenvoy.stats_sinks2,envoy.config.metrics.v3.MetricsServiceConfigJn
envoy.stat_sinks.open_telemetryenvoy.stats_sinks28envoy.extensions.stat_sinks.open_telemetry.v3.SinkConfigJP
envoy.stat_sinks.statsdenvoy.stats_sinks2"envoy.config.metrics.v3.StatsdSinkJT
envoy.stat_sinks.wasmenvoy.stats_sinks2(envoy.extensions.stat_sinks.wasm.v3.WasmJ!
envoy.statsdenvoy.stats_sinksBñ
(ç


build.type	RELEASE
:
revision.sha*(9e5580933739775e8bce696a57a2e1bc99368f23

revision.statusClean

ssl.version	BoringSSL