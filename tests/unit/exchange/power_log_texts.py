"""A small power log of each format, by the format's name."""

MADE = {
    "spl": "Time,02-23-2022 06:12:03.732,Watts,3.8,Volts,121.39,Amps,0.08,PF,0.37,Mark,a\n"
    "Time,02-23-2022 06:12:04.750,Watts,4.7,Volts,121.4,Amps,0.1,PF,0.37,Mark,a,Ch1,Watts,2.0,Volts,1,Amps,1,PF,1\n"
    "Time,02-23-2022 06:12:05.751,Watts,5.2,Volts,121.41,Amps,0.1,PF,0.37,Mark,b\n",
    "tegrastats": "11-05-2024 10:00:00 RAM 519/7607MB (lfb 4x4MB) SWAP 0/3803MB (cached 0MB) CPU [10%@729,off,30%@1510]"
    " EMC_FREQ 1%@3199 GR3D_FREQ 50%@[1018] APE 200 cpu@44.5C gpu@-256C VDD_IN 5971mW/5971mW NEW_RAIL 7mW/7mW\n"
    "11-05-2024 10:00:02 RAM 520/7607MB CPU [0%@729,off,0%@729] GR3D_FREQ 0% cpu@45C VDD_IN 6011mW/5991mW\n",
    "table": "t_ms,power_in_mw,gpu_freq_mhz,note\n0,5971,1018,0\n100,6011,1018,0\n200,6011,1010,0\n",
    "zeus": "start_time,window_name,elapsed_time,gpu0_energy,gpu1_energy\n1.5,w300,2.0,600.0,500.0\n20,w275,4,800,7\n",
    "zeus_trace": "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power\nc,n,8,a,9,20,90.5\n",
    "jetson_summary": "tag,measure_seconds_actual,avg_power_w,energy_total_j\nrun,120.0,12.0,1440.0\n",
    "nvidia_smi": "timestamp, index, power.draw [W], clocks.sm [MHz], temperature.gpu\n"
    "2024/05/01 12:00:00.100, 0, 71.50 W, 1980 MHz, 33\n2024/05/01 12:00:00.100, 1, [N/A], 345 MHz, 31\n"
    "2024/05/01 12:00:00.600, 0, 91.50 W, 1980 MHz, 34\n2024/05/01 12:00:00.600, 1, 70.0 W, 345 MHz, 31\n",
    "nvidia_dmon": "#Date       Time        gpu   pwr  gtemp  mtemp    sm   mclk   pclk\n"
    "#YYYYMMDD   HH:MM:SS    Idx     W      C      C     %    MHz    MHz\n"
    " 20260301   10:00:00      0   100     40      -    55   2619   1200\n"
    " 20260301   10:00:00      1    90     41      -     5   2619   1201\n"
    "#Date       Time        gpu   pwr  gtemp  mtemp    sm   mclk   pclk\n"
    "#YYYYMMDD   HH:MM:SS    Idx     W      C      C     %    MHz    MHz\n"
    " 20260301   10:00:02      0   120     40      -    55   2619   1200\n"
    " 20260301   10:00:02      1     -     41      -     5   2619   1201\n",
    "dcgmi_dmon": "#Entity   POWER    TMPTR   GPUTL   SMACT\nID        W        C\n"
    "GPU 0     100.000  40      50      0.25\nGPU 1     N/A      41      60      0.5\n",
    "rocm_smi": "device,Average Graphics Package Power (W),GPU use (%),sclk\n"
    "card0,100.0,45,(90Mhz)\ncard1,80.0,N/A,x\n\n",
    "recording": '{"kind": "telemetry", "schema": 1, "begin_ns": 0, "end_ns": 2000000000, "wall_ns": 0, '
    '"rate_hz": 1.0, "tick_count": 3, "late_count": 0, "missed_count": 0, "latest_s": 0.0, "cpu_s": 0.0, "note": "", '
    '"spans": [], '
    '"unavailable": [], "streams": [{"source": "recording", "channels": [{"name": "gpu.power", "unit": "W", '
    '"kind": "instantaneous", "meaning": "power now", "domain": "gpu"}], "before_ns": [0, 1000000000, 2000000000], '
    '"after_ns": [0, 1000000000, 2000000000], "values": [[100.0, 120.0, 140.0]]}]}',
}
